// Files that tests make: a folder that goes away, safetensors from a header and data, messages of errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "llmgen/error.h"

namespace llmgen::test {

/// A folder for one test, removed with it.
class Folder {
public:
    Folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "llmgen-weights-XXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path write(const std::string& name, std::string_view text) const {
        const auto file = path_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
        return file;
    }

private:
    std::filesystem::path path_;
};

/// N as its 8 bytes.
inline std::string length_bytes(std::uint64_t n) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += char(n >> (8 * i) & 0xff);
    return bytes;
}

inline std::string safetensors(std::string_view header, std::string_view data = "") {
    return length_bytes(header.size()) + std::string(header) + std::string(data);
}

/// The message of the Error that `f` throws; "" where it throws none. Checks that it is one line.
template <typename F>
std::string message_of(F f) {
    try {
        f();
    } catch (const Error& error) {
        EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
        return error.what();
    }
    return "";
}

}  // namespace llmgen::test

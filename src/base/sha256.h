// SHA-256 in hexadecimal, through OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace llmgen {

class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256& update(std::string_view text);
    Sha256& update(std::span<const std::byte> bytes);
    std::string hex();  // ends the hash

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace llmgen

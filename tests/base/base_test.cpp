#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/cores.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/lfs.h"
#include "base/mmap.h"
#include "base/sha256.h"
#include "base/tensor.h"
#include "base/utf8.h"

namespace llmgen {
namespace {

TEST(Cores, AtLeastOne) { EXPECT_GE(usable_cores(), 1); }

TEST(DType, Bf16RoundsToNearestEven) {
    EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie goes to even
    EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, EveryF16SurvivesTheRoundTrip) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        const f16 value{std::uint16_t(bits)};
        const float wide = to_f32(value);
        if (std::isnan(wide))
            EXPECT_TRUE(std::isnan(to_f32(to_f16(wide))));
        else
            ASSERT_EQ(to_f16(wide).bits, bits);
    }
    EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // rounds up past the largest finite value
    EXPECT_EQ(to_f16(65519.0f).bits, 0x7bff);
    EXPECT_EQ(to_f16(0x1p-25f).bits, 0);  // tie with zero goes to even
}

TEST(Utf8, InvalidSubpartsBecomeOneReplacementEach) {
    EXPECT_EQ(utf8::repair("a\xF0\x9F\xA4z"), "a\uFFFDz");
    EXPECT_EQ(utf8::repair("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(utf8::repair("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(utf8::repair("\xFF"
                           "A"),
              "\uFFFDA");
    EXPECT_EQ(utf8::repair("h\u00e9\U0001F917"), "h\u00e9\U0001F917");
}

TEST(Utf8, IncompleteTail) {
    EXPECT_EQ(utf8::incomplete_tail("a\xF0\x9F\xA4"), 3u);
    EXPECT_EQ(utf8::incomplete_tail("a\xC3"), 1u);
    EXPECT_EQ(utf8::incomplete_tail("a\xC3\xA9"), 0u);
    EXPECT_EQ(utf8::incomplete_tail("\xED\xA0"), 0u);  // a surrogate can't become valid
    EXPECT_EQ(utf8::incomplete_tail("\x80"), 0u);
    EXPECT_EQ(utf8::incomplete_tail(""), 0u);
}

TEST(Lfs, APointerIsRefusedByName) {
    EXPECT_NO_THROW(reject_lfs_pointer("f", ""));
    EXPECT_NO_THROW(reject_lfs_pointer("f", "version 2"));
    EXPECT_NO_THROW(reject_lfs_pointer("f", " version https://git-lfs.github.com/spec/v1"));
    try {
        reject_lfs_pointer("a/model.safetensors",
                           "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "a/model.safetensors: is a Git LFS pointer, not the file itself; run git lfs pull in "
                     "that folder");
    }
}

TEST(JsonText, NoReaderEndsALineInsideAString) {
    EXPECT_EQ(one_line_json("{\"t\":\"a\u2028b\u2029\u2029c\u0085\u00e9\"}"),
              "{\"t\":\"a\\u2028b\\u2029\\u2029c\\u0085\u00e9\"}");
}

TEST(Sha256, OfAbc) {
    EXPECT_EQ(Sha256().update("abc").hex(),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(MappedFile, NamesTheMissingFile) {
    try {
        MappedFile("/nonexistent/x");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("/nonexistent/x"), std::string::npos);
    }
}

TEST(MappedFile, APipeThatNobodyWritesToIsNotWaitedFor) {
    const auto path = std::filesystem::temp_directory_path() / ("llmgen_pipe_" + std::to_string(::getpid()));
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(read_file(path), "");
    std::string said;
    try {
        MappedFile file(path);
    } catch (const Error& error) {
        said = error.what();
    }
    EXPECT_NE(said.find("is a pipe or a device"), std::string::npos) << said;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);  // a writer that is there is waited for
    std::jthread writer([fd] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        (void)!::write(fd, "text", 4);
        ::close(fd);
    });
    EXPECT_EQ(read_file(path), "text");
    std::filesystem::remove(path);
}

TEST(Tensor, ViewsOfRowsAndColumns) {
    float data[12] = {};
    const Tensor t(data, DType::f32, {3, 4});
    EXPECT_EQ(describe(t), "[3, 4] f32");
    EXPECT_EQ(t.rows(1, 2).data, data + 4);
    EXPECT_EQ(t.columns(1, 2).rows(2, 1).data, data + 9);
    EXPECT_FALSE(t.columns(1, 2).contiguous());
    EXPECT_DEATH(expect_shape(t, "t", {3, 5}), "axis 1 is 4, expected 5");
}

}  // namespace
}  // namespace llmgen

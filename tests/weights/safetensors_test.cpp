// Every rule of the format, broken on its own: each has its message. The verdicts (not the words) agree with
// the safetensors library's on all of these files, but for the stricter ones at the end.
#include "weights/safetensors.h"

#include "../support.h"
#include "files.h"

namespace llmgen {
namespace {

using test::length_bytes;
using test::safetensors;
using testing::HasSubstr;

const std::string kFour(4, '\0');
const std::string kEight(8, '\0');
constexpr const char* kGood = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

std::vector<TensorInfo> parse(const std::string& file) { return parse_safetensors(file, file.size(), "x"); }

std::string message(const std::string& file) {
    return test::message_of([&] { parse(file); });
}

/// One tensor `a` of this type, shape and place, in `n_data` bytes of data.
std::string one(const std::string& type,
                const std::string& shape,
                const std::string& offsets,
                std::size_t n_data) {
    return safetensors(
        R"({"a":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
        std::string(n_data, '\0'));
}

TEST(Safetensors, ReadsNamesTypesShapesAndPlaces) {
    const auto tensors = parse(safetensors(R"({"b":{"data_offsets":[4,12],"shape":[2,2],"dtype":"BF16"},)"
                                           R"("__metadata__":{"format":"pt","k":"v"},)"
                                           R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )",
                                           std::string(12, '\0')));
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].name, "a");
    EXPECT_EQ(tensors[1].name, "b");
    EXPECT_EQ(tensors[1].shape, (std::vector<std::uint64_t>{2, 2}));
    EXPECT_EQ(tensors[1].begin, 4u);
    EXPECT_EQ(tensors[1].bytes(), 8u);
    EXPECT_EQ(tensors[1].dtype(), DType::bf16);
    EXPECT_EQ(describe(tensors[1]), "[2, 2] BF16");
}

TEST(Safetensors, AFileCutShortSaysHowLongItShouldBe) {
    const std::string good = safetensors(kGood, kFour);
    EXPECT_EQ(message(good), "");
    const std::string full = std::to_string(good.size());
    const auto cut = [&](std::size_t size) { return message(good.substr(0, size)); };
    EXPECT_EQ(cut(good.size() - 1), "x: truncated: " + std::to_string(good.size() - 1) +
                                        " bytes, but its header describes " + full + "; download it again");
    EXPECT_THAT(cut(good.size() / 2), HasSubstr("truncated: 33 bytes, but the header alone takes 62"));
    EXPECT_THAT(cut(8), HasSubstr("truncated: 8 bytes"));
    EXPECT_EQ(cut(7), "x: 7 bytes are too few for a safetensors file; download it again");
    EXPECT_THAT(cut(0), HasSubstr("0 bytes are too few"));
    EXPECT_THAT(message(good + "x"), HasSubstr("1 at the end belong to no tensor"));
    EXPECT_THAT(message(one("F32", "[4]", "[0,16]", 4)), HasSubstr("truncated"));
}

TEST(Safetensors, TheHeaderLengthIsCheckedBeforeItIsUsed) {
    for (const std::uint64_t n :
         {std::uint64_t(1) << 63, ~std::uint64_t(0), std::uint64_t(100'000'001), std::uint64_t(132'095'296)})
        EXPECT_EQ(message(length_bytes(n) + "{}"), "x: header too large: " + std::to_string(n) +
                                                       " bytes, limit 100000000; not a safetensors file?");
    EXPECT_THAT(message(length_bytes(3) + "{}"),
                HasSubstr("truncated: 10 bytes, but the header alone takes 11"));
    EXPECT_THAT(message(length_bytes(0)), HasSubstr("doesn't begin with '{'"));
}

TEST(Safetensors, NamesWhatPeopleHaveInPlaceOfTheFile) {
    EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
                HasSubstr("is a Git LFS pointer, not the file itself; run git lfs pull"));
    EXPECT_THAT(message("<!DOCTYPE html><html>"), HasSubstr("web page"));
    EXPECT_THAT(message("\n <html lang=\"en\">"), HasSubstr("web page"));
    EXPECT_THAT(message("PK\x03\x04 and so on"), HasSubstr("PyTorch"));
    EXPECT_THAT(message("GGUF and so on"), HasSubstr("GGUF"));
}

TEST(Safetensors, TheTensorsCoverTheDataOnce) {
    const auto two = [](const std::string& b, std::size_t n_data) {
        return message(safetensors(
            R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)"
            R"("data_offsets":)" +
                b + "}}",
            std::string(n_data, '\0')));
    };
    EXPECT_EQ(two("[4,8]", 8), "");
    EXPECT_EQ(two("[2,6]", 6), "x: tensor b begins at 2, inside tensor a which ends at 4");
    EXPECT_EQ(two("[0,4]", 4), "x: tensor b begins at 0, inside tensor a which ends at 4");
    EXPECT_EQ(two("[5,9]", 9), "x: gap of 1 bytes between tensor a and tensor b");
    EXPECT_EQ(message(one("F32", "[1]", "[4,8]", 8)), "x: gap of 4 bytes between the header and tensor a");
    EXPECT_THAT(message(one("F32", "[1]", "[4,0]", 4)),
                HasSubstr("tensor a: data_offsets [4, 0] end before they begin"));
    EXPECT_THAT(message(safetensors("{}", kFour)), HasSubstr("4 at the end belong to no tensor"));
    EXPECT_EQ(message(safetensors("{}")), "");
    EXPECT_THAT(message(one("U8", "[1]", "[18446744073709551614,18446744073709551615]", 1)),
                HasSubstr("truncated"));
}

TEST(Safetensors, ShapesTimesTypesAreTheBytes) {
    EXPECT_EQ(message(one("F32", "[2]", "[0,4]", 4)),
              "x: tensor a: [2] F32 takes 8 bytes, data_offsets have 4");
    EXPECT_THAT(message(one("F32", "[1]", "[0,0]", 0)), HasSubstr("takes 4 bytes, data_offsets have 0"));
    for (const char* shape : {"[4294967296,4294967296]", "[9223372036854775808,4,0]",
                              "[18446744073709551615,2]", "[2305843009213693952]"})
        EXPECT_THAT(message(one("F64", shape, "[0,0]", 0)), HasSubstr("more bytes than 64 bits can count"))
            << shape;
    for (const auto& [type, n] : {std::pair{"F16", 8},
                                  {"BF16", 8},
                                  {"F64", 32},
                                  {"I64", 32},
                                  {"I8", 4},
                                  {"BOOL", 4},
                                  {"F8_E4M3", 4},
                                  {"F4", 2},
                                  {"F6_E2M3", 3}}) {
        const std::string end = "[0," + std::to_string(n) + "]";
        EXPECT_EQ(message(one(type, "[4]", end, std::size_t(n))), "") << type;
    }
    EXPECT_THAT(message(one("F4", "[1]", "[0,0]", 0)), HasSubstr("takes"));
}

TEST(Safetensors, EmptyTensorsAndScalarsAreFine) {
    EXPECT_EQ(message(one("F32", "[]", "[0,4]", 4)), "");
    EXPECT_EQ(message(one("F32", "[0]", "[0,0]", 0)), "");
    EXPECT_EQ(message(one("F32", "[0,9223372036854775808,4]", "[0,0]", 0)), "");
    const std::string middle =
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[0,3],)"
        R"("data_offsets":[4,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
    EXPECT_EQ(message(safetensors(middle, kEight)), "");
    const std::string inside =
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"z":{"dtype":"F32","shape":[0],)"
        R"("data_offsets":[4,4]}})";
    EXPECT_THAT(message(safetensors(inside, kEight)), HasSubstr("tensor z begins at 4, inside tensor a"));
}

TEST(Safetensors, AnUnknownTypeStillHasItsPlaceChecked) {
    EXPECT_EQ(message(one("Q9_X", "[1]", "[0,4]", 4)), "");
    EXPECT_FALSE(parse(one("Q9_X", "[1]", "[0,4]", 4))[0].dtype().has_value());
    EXPECT_THAT(message(one("Q9_X", "[1]", "[2,6]", 6)), HasSubstr("gap"));
    EXPECT_THAT(message(one("Q9_X", "[1]", "[0,18446744073709551615]", 4)), HasSubstr("truncated"));
    EXPECT_THAT(message(one("Q9_X", "[4294967296,4294967296]", "[0,4]", 4)), HasSubstr("64 bits"));
}

TEST(Safetensors, TheHeaderSaysWhatIsWrongInIt) {
    const auto header = [](const std::string& text) { return message(safetensors(text, kFour)); };
    EXPECT_THAT(header("[]"), HasSubstr("doesn't begin with '{'"));
    EXPECT_THAT(header("{"), HasSubstr("header is not valid JSON: error at its byte 2"));
    EXPECT_THAT(header(kGood + std::string("x")), HasSubstr("not valid JSON"));
    EXPECT_THAT(header(kGood + std::string(1, '\0')), HasSubstr("not valid JSON"));
    EXPECT_EQ(header(kGood + std::string(" \n ")), "");
    EXPECT_THAT(header("{\"\xff\":{}}"), HasSubstr("not valid JSON"));
    EXPECT_THAT(header(R"({"\ud800":{}})"), HasSubstr("not valid JSON"));
    EXPECT_EQ(header(R"({"a":5})"), "x: tensor a is a number, expected an object");
    EXPECT_EQ(header(R"({"a":null})"), "x: tensor a is null, expected an object");
    EXPECT_EQ(header(R"({"a":["F32",[1],[0,4]]})"), "x: tensor a is an array, expected an object");
    EXPECT_EQ(header(R"({"a":{}})"), "x: tensor a has no dtype");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"), "x: tensor a has no shape");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":[1]}})"), "x: tensor a has no data_offsets");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})"),
              "x: tensor a dtype is there twice");
    EXPECT_EQ(header(R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})"),
              "x: tensor a dtype is an array, expected a string");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})"),
              "x: tensor a shape is an array, expected a list of whole numbers");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})"),
              "x: tensor a shape is a string, expected a list of whole numbers");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"),
              "x: tensor a shape is a negative number, expected a list of whole numbers");
    for (const char* end : {"4.0", "18446744073709551616", "1e1"})
        EXPECT_EQ(
            header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,)" + std::string(end) + "]}}"),
            "x: tensor a data_offsets is a fraction or a number past 64 bits, expected two whole numbers");
    EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})"),
              "x: tensor a has 3 data_offsets, expected 2");
    EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e999]}})"),
                HasSubstr("not valid JSON"));
}

TEST(Safetensors, MetadataIsTextAndOnce) {
    const auto header = [](const std::string& text) { return message(safetensors(text)); };
    EXPECT_EQ(header(R"({"__metadata__":{"a":"b"}})"), "");
    EXPECT_EQ(header(R"({"__metadata__":null})"), "");
    EXPECT_EQ(header(R"({"__metadata__":{"a":1}})"),
              "x: __metadata__ is a number, expected text for each key");
    EXPECT_EQ(header(R"({"__metadata__":{"a":{"b":"c"}}})"),
              "x: __metadata__ is an object, expected text for each key");
    EXPECT_THAT(header(R"({"__metadata__":[]})"), HasSubstr("__metadata__ is an array"));
    EXPECT_EQ(header(R"({"__metadata__":{},"__metadata__":{}})"), "x: __metadata__ is in the header twice");
}

TEST(Safetensors, KeysTheFormatDoesNotHaveYetArePassedOver) {
    for (const char* extra :
         {"1", "null", "\"F32\"", "[1,[2,{}]]", "{\"dtype\":{\"shape\":[null]}}", "true", "-1.5"})
        EXPECT_EQ(message(safetensors(R"({"a":{"new":)" + std::string(extra) +
                                          R"(,"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      kFour)),
                  "")
            << extra;
}

// The library lets these two pass; the format's description doesn't.
TEST(Safetensors, StricterThanTheLibrary) {
    EXPECT_EQ(
        message(safetensors(
            R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            kFour)),
        "x: tensor a is in the header twice");
    EXPECT_EQ(
        message(safetensors(
            R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F16","shape":[0],"data_offsets":[0,0]}})")),
        "x: tensor a is in the header twice");
    EXPECT_THAT(message(safetensors(std::string(" ") + kGood, kFour)), HasSubstr("doesn't begin with '{'"));
}

TEST(Safetensors, HostileDepthAndNamesStayOneLine) {
    EXPECT_NE(message(safetensors(R"({"a":{"new":)" + std::string(1'000'000, '['))), "");
    EXPECT_THAT(message(safetensors(R"({"a\nb\u0007c":5})")), HasSubstr("tensor a\xEF\xBF\xBD"
                                                                        "b\xEF\xBF\xBD"
                                                                        "c is"));
    EXPECT_LT(message(safetensors("{\"" + std::string(100'000, 'n') + "\":5}")).size(), 400u);
}

TEST(SafetensorsFile, MapsTheData) {
    const test::Folder folder;
    const SafetensorsFile file(folder.write("m.safetensors", safetensors(kGood, "\1\2\3\4")));
    const auto data = file.data(file.tensors()[0]);
    ASSERT_EQ(data.size(), 4u);
    EXPECT_EQ(int(data[3]), 4);
    EXPECT_EQ(file.header().size(), 8 + std::string_view(kGood).size());
    file.drop(file.tensors()[0]);
    EXPECT_EQ(int(data[0]), 1);
    EXPECT_THAT(test::message_of([&] { SafetensorsFile(folder.path() / "none"); }),
                HasSubstr("No such file"));
}

}  // namespace
}  // namespace llmgen

#include "text/json_view.h"

#include "base/lfs.h"
#include "base/mmap.h"

namespace llmgen {
namespace {

/// Integers of 19 digits and more get an exponent, which makes them floating-point numbers: transformers
/// writes "model_max_length": 1000000000000000019884624838656, and simdjson refuses such integers.
std::string with_long_integers_as_floats(std::string_view text) {
    std::string out;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        out += c;
        if (in_string && c == '\\' && i + 1 < text.size()) {
            out += text[++i];
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && c >= '0' && c <= '9') {
            std::size_t n = 1;
            while (i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') {
                out += text[++i];
                ++n;
            }
            const char next = i + 1 < text.size() ? text[i + 1] : ' ';
            if (n >= 19 && next != '.' && next != 'e' && next != 'E') out += "e0";
        }
    }
    return out;
}

}  // namespace

JsonFile::JsonFile(const std::filesystem::path& path) : name_(path.string()), text_(read_file(path)) {
    parse();
}
JsonFile::JsonFile(std::string name, std::string_view text) : name_(std::move(name)), text_(text) { parse(); }

void JsonFile::parse() {
    reject_lfs_pointer(name_, text_);
    text_.reserve(text_.size() + simdjson::SIMDJSON_PADDING);
    auto error = parser_.parse(text_.data(), text_.size(), false).get(root_);
    if (error == simdjson::NUMBER_ERROR) {
        text_ = with_long_integers_as_floats(text_);
        text_.reserve(text_.size() + simdjson::SIMDJSON_PADDING);
        error = parser_.parse(text_.data(), text_.size(), false).get(root_);
    }
    if (error) fail("{}: not valid JSON: {}", name_, simdjson::error_message(error));
}

}  // namespace llmgen

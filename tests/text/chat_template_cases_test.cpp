// Replays chat template cases: those of this tree and, where it exists, the reference material's. Prints
// counts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "llmgen/chat_template.h"
#include "llmgen/error.h"
#include "support.h"

namespace llmgen {
namespace {

using json = nlohmann::ordered_json;

// The members of a JSON object, each as it is written: numbers must reach the template with all their digits.
std::map<std::string, std::string> members(std::string_view object) {
    std::map<std::string, std::string> out;
    int depth = 0;
    bool in_string = false;
    std::string key;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < object.size(); ++at) {
        const char c = object[at];
        if (in_string) {
            if (c == '\\') ++at;
            if (c == '"') in_string = false;
            continue;
        }
        in_string = c == '"';
        if (depth == 1 && c == ':' && key.empty()) {
            key = json::parse(object.substr(begin, at - begin)).get<std::string>();
            begin = at + 1;
        }
        if ((depth == 1 && c == ',') || (depth == 1 && c == '}')) {
            if (!key.empty()) out[key] = std::string(object.substr(begin, at - begin));
            key.clear();
            begin = at + 1;
        }
        if (c == '{' || c == '[') {
            if (depth == 0) begin = at + 1;
            ++depth;
        }
        if (c == '}' || c == ']') --depth;
    }
    return out;
}

std::optional<std::string> token(const json& c, const char* name) {
    if (!c.contains(name) || c[name].is_null()) return std::nullopt;
    return c[name].get<std::string>();
}

RenderInput input_of(const json& c, const std::string& line) {
    auto raw = members(line);
    RenderInput in;
    in.messages_json = raw.at("messages");
    if (raw.count("tools")) in.tools_json = raw["tools"];
    if (raw.count("documents")) in.documents_json = raw["documents"];
    in.add_generation_prompt = c.value("add_generation_prompt", false);
    in.continue_final_message = c.value("continue_final_message", false);
    if (raw.count("kwargs")) in.variables = members(raw["kwargs"]);
    return in;
}

// What an error line must say: the template's own words, or the reference's class and wording; and the line
// of a syntax error.
std::string missing_words(const json& c, const std::string& what) {
    std::string words = c.value("error_text", c.at("error").get<std::string>());
    for (std::size_t at = 0; (at = words.find('\n', at)) != std::string::npos; at += 2)
        words.replace(at, 1, "\\n");
    const std::string type = c.value("error_class", "");
    if (type == "TemplateError") return what == words ? "" : words;
    std::string missing;
    if (what.find(type) == std::string::npos) missing += type + "; ";
    if (type != "SyntaxError" && type != "RecursionError" && what.find(words) == std::string::npos)
        missing += words + "; ";
    if (c.contains("lineno") &&
        what.find("line " + std::to_string(c["lineno"].get<int>()) + ",") == std::string::npos)
        missing += "line " + c["lineno"].dump();
    return missing;
}

void replay(const std::filesystem::path& path) {
    setenv("LLMGEN_NOW", "2026-07-04T09:05:06", 1);
    std::ifstream file(path);
    int texts = 0, errors = 0, wrong = 0, wording = 0;
    for (std::string line; std::getline(file, line);) {
        const json c = json::parse(line);
        const std::string id = c.at("id");
        try {
            const ChatTemplate t = ChatTemplate::parse(c.at("template_text").get<std::string>(),
                                                       token(c, "bos_token"), token(c, "eos_token"));
            const RenderedPrompt p = t.render(input_of(c, line));
            if (!c.contains("expected")) {
                ++wrong;
                ADD_FAILURE() << id << ": no error, but " << json(p.text).dump() << "; wanted " << c["error"];
            } else if (p.text != c["expected"].get<std::string>()) {
                ++wrong;
                ADD_FAILURE() << id << ":\n  got    " << json(p.text).dump() << "\n  wanted "
                              << c["expected"].dump();
            } else {
                ++texts;
            }
        } catch (const Error& e) {
            if (c.contains("expected")) {
                ++wrong;
                ADD_FAILURE() << id << ": " << e.what() << "\n  wanted " << c["expected"].dump();
                continue;
            }
            ++errors;
            const std::string missing = missing_words(c, e.what());
            if (!missing.empty()) {
                ++wording;
                ADD_FAILURE() << id << ": \"" << e.what() << "\" lacks " << missing;
            }
        }
    }
    std::cout << path.filename().string() << ": " << texts << " texts and " << errors
              << " errors as in the reference, " << wrong << " wrong, " << wording
              << " errors in other words\n";
    EXPECT_GT(texts, 0);
}

TEST(ChatTemplateCases, OfThisTree) { replay(test::data("templates/cases.jsonl")); }

TEST(ChatTemplateCases, Reference) {
    const auto path = test::shared("cases/templates.jsonl");
    SKIP_WITHOUT(path);
    replay(path);
}

}  // namespace
}  // namespace llmgen

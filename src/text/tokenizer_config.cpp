// What a checkpoint says beside its tokenizer file: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json.
#include <algorithm>

#include "text/json_view.h"
#include "text/tokenizer_impl.h"

namespace llmgen {
namespace {

/// "<s>" or {"content": "<s>", …}.
std::string token_string(const JsonView& j) {
    return std::string(j.is_object() ? j.need("content").string() : j.string());
}

AddedToken parse_token(const JsonView& j) {
    AddedToken t;
    t.content = j.need("content").string();
    t.single_word = j.flag("single_word", false);
    t.lstrip = j.flag("lstrip", false);
    t.rstrip = j.flag("rstrip", false);
    t.special = j.flag("special", false);
    t.normalized = j.flag("normalized", !t.special);
    return t;
}

int parse_id(std::string_view text, const JsonView& j) {
    int id = 0;
    for (char c : text) {
        if (c < '0' || c > '9' || (id = id * 10 + (c - '0')) >= kMaxVocabSize)
            j.broken("{} is no token id", quote(text));
    }
    return id;
}

/// Tokens in the order of their ids.
void add_in_order(Tokenizer::Impl& impl, std::vector<AddedToken> tokens) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    for (AddedToken& t : tokens) impl.add_token(std::move(t));
}

void read_added_tokens(Tokenizer::Impl& impl, const std::filesystem::path& path) {
    const JsonFile file(path);
    std::vector<AddedToken> tokens;
    file.root().each_member([&](std::string_view content, const JsonView& id) {
        AddedToken t;
        t.content = content;
        t.id = int(id.integer(0, kMaxVocabSize - 1));
        if (!impl.id_of(content)) tokens.push_back(std::move(t));
    });
    add_in_order(impl, std::move(tokens));
}

}  // namespace

void load_tokenizer_config(Tokenizer::Impl& impl, const std::filesystem::path& dir) {
    const std::filesystem::path config = dir / "tokenizer_config.json", map = dir / "special_tokens_map.json",
                                added = dir / "added_tokens.json";
    if (std::filesystem::exists(map)) {
        const JsonFile file(map);
        if (const auto t = file.root().find("bos_token")) impl.bos = token_string(*t);
        if (const auto t = file.root().find("eos_token")) impl.eos = token_string(*t);
    }
    if (std::filesystem::exists(added)) read_added_tokens(impl, added);
    if (!std::filesystem::exists(config)) return;
    const JsonFile file(config);
    const JsonView root = file.root();
    if (const auto decoder = root.find("added_tokens_decoder")) {
        std::vector<AddedToken> tokens;
        decoder->each_member([&](std::string_view id, const JsonView& j) {
            AddedToken t = parse_token(j);
            t.id = parse_id(id, j);
            tokens.push_back(std::move(t));
        });
        add_in_order(impl, std::move(tokens));
    }
    // The config decides, also that there is none (null).
    simdjson::dom::element value;
    for (auto [key, target] : {std::pair{"bos_token", &impl.bos}, {"eos_token", &impl.eos}}) {
        if (root.object()[key].get(value)) continue;
        const auto t = root.find(key);
        *target = t ? std::optional(token_string(*t)) : std::nullopt;
    }
    if (!impl.is_model_file) return;
    impl.adds_bos = impl.adds_bos && root.flag("add_bos_token", true);
    impl.adds_eos = root.flag("add_eos_token", false);
}

}  // namespace llmgen

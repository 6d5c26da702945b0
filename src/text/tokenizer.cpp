#include "llmgen/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/lfs.h"
#include "base/mmap.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/json_view.h"
#include "text/tokenizer_impl.h"

namespace llmgen {
namespace {
constexpr std::size_t kMaxText = std::size_t(1)
                                 << 30;  // offsets are 32 bits, and normalization may double a text
constexpr std::size_t kMaxPool = 16;
}  // namespace

/// The plain ranges, for "does [begin, end) touch one?" in order of begin.
struct Tokenizer::Impl::Ranges {
    std::span<const TextRange> all;
    bool touches(std::size_t begin, std::size_t end) const {
        const auto it = std::upper_bound(all.begin(), all.end(), begin,
                                         [](std::size_t b, const TextRange& r) { return b < r.end; });
        return it != all.end() && it->begin < end && it->begin < it->end;
    }
};

std::optional<int> Tokenizer::Impl::model_id(std::string_view token) const {
    int id = -1;
    if (raw_bytes) {
        if (const auto it = unspellable.find(std::string(token)); it != unspellable.end()) return it->second;
        if (const auto bytes = alphabet_to_bytes(token)) id = model->vocab().find(*bytes);
    } else {
        id = model->vocab().find(token);
    }
    return id >= 0 ? std::optional(id) : std::nullopt;
}

std::string Tokenizer::Impl::model_string(int id) const {
    const std::string_view bytes = model->vocab().string(id);
    if (!raw_bytes) return std::string(bytes);
    // An entry outside the alphabet is kept as it is, and not found by its bytes.
    const auto it = unspellable.find(std::string(bytes));
    return it != unspellable.end() && it->second == id ? std::string(bytes) : bytes_to_alphabet(bytes);
}

std::optional<int> Tokenizer::Impl::id_of(std::string_view token) const {
    if (const auto it = added_ids_.find(std::string(token)); it != added_ids_.end()) return it->second;
    return model_id(token);
}

std::string Tokenizer::Impl::token(int id) const {
    if (const auto it = added_by_id_.find(id); it != added_by_id_.end()) return tokens_[it->second].content;
    return model_string(id);
}

std::string Tokenizer::Impl::decoder_token(int id) const {
    const auto it = added_by_id_.find(id);
    if (!sentencepiece) return it != added_by_id_.end() ? tokens_[it->second].content : model_string(id);
    if (it != added_by_id_.end()) return "a" + tokens_[it->second].content;
    const char kind = piece_kinds[std::size_t(id)];
    if (kind == 'b')
        return std::string("b") +
               char(std::stoi(std::string(model->vocab().string(id).substr(3, 2)), nullptr, 16));
    return kind + std::string(model->vocab().string(id));
}

void Tokenizer::Impl::add_token(AddedToken token) {
    if (token.content.empty()) return;
    if (const auto known = id_of(token.content)) {
        token.id = *known;
    } else {
        token.id = std::max(int(n_model_tokens()), largest_added_ + 1);
    }
    if (token.id >= kMaxVocabSize) fail("more than {} tokens with the added ones", kMaxVocabSize);
    largest_added_ = std::max(largest_added_, token.id);
    added_ids_[token.content] = token.id;
    if (const auto it = added_by_id_.find(token.id); it != added_by_id_.end()) {
        tokens_[it->second] = std::move(token);
        return;
    }
    added_by_id_[token.id] = tokens_.size();
    tokens_.push_back(std::move(token));
}

void Tokenizer::Impl::seal() {
    if (tokens_.empty()) {
        for (AddedToken& t : default_tokens) add_token(std::move(t));
        for (const auto& [name, id] : aliases) {
            AddedToken alias = tokens_[added_by_id_.at(id)];
            added_ids_[name] = id;
            raw_finder_.add(alias, name);
        }
    }
    if (adds_bos || adds_eos) {
        PostStep step;
        const auto add = [&](bool wanted, const std::optional<std::string>& token) {
            const auto id = wanted && token ? id_of(*token) : std::nullopt;
            if (id) step.items.push_back({false, {*id}});
        };
        add(adds_bos, bos);
        step.items.push_back({true, {}});
        add(adds_eos, eos);
        post.add(std::move(step));
    }
    vocab_size_ = model->vocab().size();
    for (const AddedToken& t : tokens_) vocab_size_ = std::max(vocab_size_, t.id + 1);
    special_.assign(std::size_t(vocab_size_), false);
    asks_for_start_ = pre_tokenizer && pre_tokenizer->asks_for_start();
    for (const bool special : {true, false}) {
        for (const AddedToken& t : tokens_) {
            if (t.special != special) continue;
            special_[std::size_t(t.id)] = t.special;
            if (!t.normalized) {
                raw_finder_.add(t, t.content);
                continue;
            }
            NormalText pattern{t.content, false, {}};
            if (normalizer) normalizer->apply(pattern);
            normalized_finder_.add(t, pattern.text);
        }
    }
}

std::unique_ptr<EncodeScratch> Tokenizer::Impl::borrow() const {
    const std::lock_guard lock(mutex_);
    if (pool_.empty()) return std::make_unique<EncodeScratch>();
    auto scratch = std::move(pool_.back());
    pool_.pop_back();
    return scratch;
}

void Tokenizer::Impl::give_back(std::unique_ptr<EncodeScratch> scratch) const {
    const std::lock_guard lock(mutex_);
    if (pool_.size() < kMaxPool) pool_.push_back(std::move(scratch));
}

std::vector<int> Tokenizer::Impl::encode(std::string_view text, const EncodeOptions& options) const {
    if (text.size() > kMaxText)
        fail("the text has {} bytes; at most {} can be tokenized at once", text.size(), kMaxText);
    std::string repaired;
    std::vector<TextRange> moved;
    Ranges plain{options.plain_ranges};
    if (!utf8::is_valid(text)) {
        // Offsets move with the repair: each range is repaired by itself, as is what lies between.
        std::size_t done = 0;
        for (const TextRange& r : options.plain_ranges) {
            const std::size_t begin = std::clamp(r.begin, done, text.size()),
                              end = std::clamp(r.end, begin, text.size());
            repaired += utf8::repair(text.substr(done, begin - done));
            const std::size_t from = repaired.size();
            repaired += utf8::repair(text.substr(begin, end - begin));
            moved.push_back({from, repaired.size()});
            done = end;
        }
        repaired += utf8::repair(text.substr(done));
        text = repaired;
        plain.all = moved;
    }
    auto scratch = borrow();
    std::vector<int> ids;
    ids.reserve(text.size() / 4 + 8);
    auto& parts = scratch->parts;
    parts.clear();
    raw_finder_.split(
        text, options.parse_special, options.control_ids,
        [&](std::size_t b, std::size_t e) { return plain.touches(b, e); }, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto [span, id] = parts[i];
        if (id >= 0)
            ids.push_back(id);
        else
            encode_text(text.substr(span.begin, span.end - span.begin), span.begin, options, plain, ids,
                        *scratch);
    }
    give_back(std::move(scratch));
    return post.apply(std::move(ids), options.add_special_tokens);
}

void Tokenizer::Impl::encode_text(std::string_view text,
                                  std::size_t offset,
                                  const EncodeOptions& options,
                                  const Ranges& plain,
                                  std::vector<int>& ids,
                                  EncodeScratch& s) const {
    NormalText normal;
    if (normalizer) {
        normal.text = text;
        normal.tracked = asks_for_start_ || (!plain.all.empty() && !normalized_finder_.empty());
        if (normal.tracked) {
            normal.origins.resize(text.size());
            for (std::size_t at = 0; at < text.size();) {
                const auto n = std::size_t(utf8::decode(text.substr(at)).length);
                std::fill_n(normal.origins.begin() + std::ptrdiff_t(at), n, std::uint32_t(at));
                at += n;
            }
        }
        normalizer->apply(normal);
        text = normal.text;
    }
    const auto origin = [&](std::size_t at) { return offset + (normalizer ? normal.origin(at) : at); };
    const auto touches = [&](std::size_t begin, std::size_t end) {
        return !plain.all.empty() && plain.touches(origin(begin), origin(end - 1) + 1);
    };
    s.inner.clear();
    normalized_finder_.split(text, options.parse_special, options.control_ids, touches, s.inner);
    for (const auto& [span, id] : s.inner) {
        if (id >= 0) {
            ids.push_back(id);
            continue;
        }
        std::size_t start_end = 0;  // how far the first character of the user's text reaches
        if (asks_for_start_ && offset == 0)
            while (span.begin + start_end < span.end && origin(span.begin + start_end) == 0) ++start_end;
        encode_pieces(text.substr(span.begin, span.end - span.begin), offset == 0 && span.begin == 0,
                      start_end, ids, s);
    }
}

void Tokenizer::Impl::encode_pieces(std::string_view text,
                                    bool at_start,
                                    std::size_t start_end,
                                    std::vector<int>& ids,
                                    EncodeScratch& s) const {
    if (!pre_tokenizer) return (inner_model && !at_start ? *inner_model : *model).encode(text, ids, s.model);
    s.pre.text = text;
    s.pre.start_end = start_end;
    s.pre.pieces.assign(1, {0, std::uint32_t(text.size())});
    pre_tokenizer->apply(s.pre);
    for (const Span piece : s.pre.pieces)
        model->encode(s.pre.text.substr(piece.begin, piece.end - piece.begin), ids, s.model);
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::shared_ptr<Tokenizer::Impl> load_tokenizer_bytes(const std::string& name, std::string_view bytes) {
    auto impl = std::make_shared<Tokenizer::Impl>();
    reject_lfs_pointer(name, bytes);
    const std::size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first != bytes.npos && bytes[first] == '{')
        load_tokenizer_json(*impl, name, bytes);
    else if (first == bytes.npos)
        fail("{}: is empty; download it again", name);
    else if (name.ends_with(".json"))
        fail("{}: not valid JSON: it doesn't begin with {{", name);
    else if (looks_like_tiktoken(bytes))
        load_tiktoken(*impl, name, bytes);
    else
        load_sentencepiece(*impl, name, bytes, true);
    return impl;
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
    std::filesystem::path file = path;
    const bool is_dir = std::filesystem::is_directory(path);
    if (is_dir) {
        file = path / "tokenizer.json";
        if (!std::filesystem::exists(file)) file = path / "tokenizer.model";
        if (!std::filesystem::exists(file))
            fail("{}: neither tokenizer.json nor tokenizer.model is in this directory", path.string());
    }
    const std::string bytes = read_file(file);
    std::shared_ptr<Impl> impl = load_tokenizer_bytes(file.string(), bytes);
    impl->sha256 = Sha256().update(bytes).hex();
    if (is_dir) load_tokenizer_config(*impl, path);
    impl->seal();
    return Tokenizer(std::move(impl));
}

std::vector<int> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    return impl_->encode(text, options);
}

std::string Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
    Detokenizer detokenizer(*this, skip_special);
    std::string text;
    for (int id : ids) text += detokenizer.push(id);
    return text + detokenizer.flush();
}

int Tokenizer::vocab_size() const { return impl_->vocab_size(); }
std::string Tokenizer::token(int id) const { return impl_->token(id); }
std::optional<int> Tokenizer::id_of(std::string_view token) const { return impl_->id_of(token); }
bool Tokenizer::is_special(int id) const { return impl_->is_special(id); }
std::vector<int> Tokenizer::ordinary_added_ids() const { return impl_->ordinary_added_ids(); }
std::optional<std::string> Tokenizer::bos_token() const { return impl_->bos; }
std::optional<std::string> Tokenizer::eos_token() const { return impl_->eos; }
const std::string& Tokenizer::sha256() const { return impl_->sha256; }

class Detokenizer::State {
public:
    explicit State(const DecoderPlan& plan) : chain(plan) {}
    DecodeChain chain;
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer.impl_),
      state_(std::make_unique<State>(tokenizer_->decoder)),
      skip_special_(skip_special) {}
Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(int id) {
    if (!tokenizer_->known(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
    state_->chain.push(tokenizer_->decoder_token(id));
    return state_->chain.take();
}

std::string Detokenizer::flush() {
    state_->chain.flush();
    return state_->chain.take();
}

}  // namespace llmgen

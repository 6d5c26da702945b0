// tokenizer.json: the Hugging Face tokenizers library's format.
//
// What a loader can get wrong without anybody noticing, and what is done here:
//  - merges come as "a b" or as ["a", "b"]; a BPE without any, whose vocabulary needs some, is an Error;
//  - the ids of added tokens in the file are only comments: the vocabulary's id counts, else the next free
//  one;
//  - truncation and padding are not applied (transformers switches them off);
//  - with ByteLevel at the end of the pre-tokenizer the vocabulary is turned into raw bytes here, once, so
//  that no text
//    is ever mapped to the byte alphabet.
#include <algorithm>
#include <unordered_set>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/json_view.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_json_parts.h"
#include "text/unigram.h"

namespace llmgen {
namespace {

class Loader {
public:
    Loader(Tokenizer::Impl& impl, const JsonView& root) : impl_(impl), root_(root) {}
    void load() {
        const JsonView model = root_.need("model");
        load_model(model);
        if (const auto j = root_.find("normalizer")) impl_.normalizer = parse_normalizer(*j);
        if (const auto j = root_.find("pre_tokenizer"))
            impl_.pre_tokenizer = parse_pre_tokenizer(*j, impl_.raw_bytes);
        if (const auto j = root_.find("decoder"))
            impl_.decoder = parse_decoder(*j);
        else
            impl_.decoder.push_back(make_join_decoder());
        if (const auto j = root_.find("added_tokens"))
            j->each([&](const JsonView& t, std::size_t) { add_token(t); });
        if (const auto j = root_.find("post_processor")) load_post_processor(*j, 0);
    }

private:
    void load_model(const JsonView& j) {
        std::string type = j.text("type", "");
        if (type.empty()) type = j.find("merges") ? "BPE" : "Unigram";
        if (type == "BPE")
            load_bpe(j);
        else if (type == "Unigram")
            load_unigram(j);
        else
            j.broken("a model of type {} is not supported", quote(type));
    }

    static int parse_id(const JsonView& j) { return int(j.integer(0, kMaxVocabSize - 1)); }

    /// A token as the model's vocabulary holds it.
    std::optional<std::string> spelled(std::string_view token) const {
        return impl_.raw_bytes ? alphabet_to_bytes(token) : std::optional(std::string(token));
    }

    static bool is_plain(std::string_view s) {
        return std::all_of(s.begin(), s.end(), [](char c) { return c >= '!' && c <= '~'; });
    }

    void load_bpe(const JsonView& j) {
        if (const auto dropout = j.find("dropout"); dropout && dropout->number() != 0)
            j.broken("dropout is not supported: it makes ids random");
        BpeOptions o;
        o.continuing_prefix = j.text("continuing_subword_prefix", "");
        o.end_suffix = j.text("end_of_word_suffix", "");
        o.byte_fallback = j.flag("byte_fallback", false);
        o.fuse_unk = j.flag("fuse_unk", false);
        o.ignore_merges = j.flag("ignore_merges", false);
        const auto pre = root_.find("pre_tokenizer");
        o.raw_bytes = pre && ends_in_byte_level(*pre) && !o.byte_fallback && is_plain(o.continuing_prefix) &&
                      is_plain(o.end_suffix);
        impl_.raw_bytes = o.raw_bytes;

        Vocab vocab = load_vocab(j.need("vocab"));
        MergeTable merges;
        if (const auto m = j.find("merges")) load_merges(*m, vocab, merges, o.continuing_prefix.size());
        if (const auto unk = j.find("unk_token")) {
            o.has_unk = true;
            o.unk_token = unk->string();
            const auto bytes = spelled(o.unk_token);
            const auto other = impl_.unspellable.find(o.unk_token);
            o.unk_id = bytes ? vocab.find(*bytes) : other != impl_.unspellable.end() ? other->second : -1;
        }
        if (merges.size() == 0 && !o.ignore_merges) check_needs_no_merges(j, vocab, o);
        impl_.model = std::make_unique<Bpe>(std::move(vocab), std::move(merges), std::move(o));
    }

    Vocab load_vocab(const JsonView& j) {
        Vocab vocab;
        const simdjson::dom::object entries = j.object();
        vocab.reserve(entries.size(), impl_.raw_bytes ? entries.size() * 8 : entries.size() * 10);
        for (const auto& [key, value] : entries) {
            std::int64_t id = 0;
            if (value.get(id) || id < 0 || id >= kMaxVocabSize)
                j.broken("the id of {} is not an integer from 0 to {}", quote(key), kMaxVocabSize - 1);
            if (vocab.has(int(id))) j.broken("id {} stands for two tokens, {} is the second", id, quote(key));
            if (!impl_.raw_bytes) {
                vocab.add(key, int(id));
            } else if (const auto bytes = alphabet_to_bytes(key)) {
                vocab.add(*bytes, int(id));
            } else {
                vocab.add(key, int(id), false);
                impl_.unspellable.emplace(key, int(id));
            }
        }
        return vocab;
    }

    void load_merges(const JsonView& j, const Vocab& vocab, MergeTable& merges, std::size_t prefix_size) {
        const simdjson::dom::array list = j.array();
        merges.reserve(list.size());
        std::uint32_t rank = 0;
        std::string joined;
        for (simdjson::dom::element merge : list) {
            std::string_view left, right;
            split_merge(j, merge, rank, left, right);
            const auto a = spelled(left), b = spelled(right);
            const int left_id = a ? vocab.find(*a) : -1, right_id = b ? vocab.find(*b) : -1;
            if (left_id < 0 || right_id < 0)
                j.broken("merge {} joins {} and {}, and {} is not in the vocabulary", rank, quote(left),
                         quote(right), quote(left_id < 0 ? left : right));
            if (b->size() < prefix_size)
                j.broken("merge {}: {} is shorter than continuing_subword_prefix", rank, quote(right));
            joined.assign(*a).append(*b, prefix_size);
            const int id = vocab.find(joined);
            if (id < 0)
                j.broken("merge {} makes {}, which is not in the vocabulary", rank,
                         quote(impl_.raw_bytes ? bytes_to_alphabet(joined) : joined));
            if (rank + 1 >= MergeTable::kMaxMerges) j.broken("more than {} merges", MergeTable::kMaxMerges);
            merges.add(left_id, right_id, rank++, id);
        }
    }

    static void split_merge(const JsonView& j,
                            simdjson::dom::element merge,
                            std::uint32_t rank,
                            std::string_view& left,
                            std::string_view& right) {
        std::string_view line;
        if (!merge.get(line)) {
            const std::size_t space = line.find(' ');
            if (space == line.npos || line.find(' ', space + 1) != line.npos)
                j.broken("merge {} is not two tokens with a space between", rank);
            left = line.substr(0, space);
            right = line.substr(space + 1);
            return;
        }
        simdjson::dom::array pair;
        if (merge.get(pair) || pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right))
            j.broken("merge {} is neither \"a b\" nor [\"a\", \"b\"]", rank);
    }

    // Bytes or characters and added tokens need no merges; any other token can only come from one.
    void check_needs_no_merges(const JsonView& j, const Vocab& vocab, const BpeOptions& o) const {
        std::unordered_set<std::string_view> added;
        if (const auto list = root_.find("added_tokens"))
            list->each([&](const JsonView& t, std::size_t) {
                if (const auto content = t.find("content")) added.insert(content->string());
            });
        for (int id = 0; id < vocab.size(); ++id) {
            if (!vocab.has(id) || id == o.unk_id) continue;
            std::string_view token = vocab.string(id);
            if (added.contains(token) || (token.starts_with("<0x") && token.size() == 6)) continue;
            if (!o.continuing_prefix.empty() && token.starts_with(o.continuing_prefix))
                token.remove_prefix(o.continuing_prefix.size());
            if (!o.end_suffix.empty() && token.ends_with(o.end_suffix))
                token.remove_suffix(o.end_suffix.size());
            if (impl_.unspellable.contains(std::string(token)) ||
                (impl_.raw_bytes ? token.size() : utf8::length(token)) <= 1)
                continue;
            j.broken("there are no merges, and token {} can't be made without; is the file complete?",
                     quote(impl_.raw_bytes ? bytes_to_alphabet(token) : std::string(token)));
        }
    }

    void load_unigram(const JsonView& j) {
        Vocab vocab;
        std::vector<double> scores;
        j.need("vocab").each([&](const JsonView& entry, std::size_t id) {
            const simdjson::dom::array pair = entry.array();
            std::string_view piece;
            double score = 0;
            if (pair.size() != 2 || pair.at(0).get(piece) || pair.at(1).get(score))
                entry.broken("expected [piece, score]");
            if (id >= std::size_t(kMaxVocabSize)) entry.broken("more than {} pieces", kMaxVocabSize);
            vocab.add(piece, int(id));
            scores.push_back(score);
        });
        if (scores.empty()) j.broken("the vocabulary is empty");
        UnigramOptions options;
        if (const auto u = j.find("unk_id"))
            options.unk_id = int(u->integer(0, std::int64_t(scores.size()) - 1));
        options.byte_fallback = j.flag("byte_fallback", false);
        impl_.model = std::make_unique<Unigram>(std::move(vocab), std::move(scores), std::move(options));
    }

    void add_token(const JsonView& j) {
        AddedToken t;
        t.content = j.need("content").string();
        parse_id(j.need("id"));
        t.single_word = j.flag("single_word", false);
        t.lstrip = j.flag("lstrip", false);
        t.rstrip = j.flag("rstrip", false);
        t.special = j.flag("special", false);
        t.normalized = j.flag("normalized", !t.special);
        impl_.add_token(std::move(t));
    }

    int checked_id(const JsonView& j) const {
        const int id = parse_id(j);
        if (!impl_.known(id)) j.broken("id {} is neither in the vocabulary nor among the added tokens", id);
        return id;
    }

    void load_post_processor(const JsonView& j, int depth) {
        if (depth > 16) j.broken("Sequences are nested more than 16 deep");
        const std::string type = j.text("type", "");
        if (type == "ByteLevel") {
        } else if (type == "Sequence") {
            j.need("processors").each([&](const JsonView& p, std::size_t) {
                load_post_processor(p, depth + 1);
            });
        } else if (type == "TemplateProcessing") {
            load_template(j);
        } else if (type == "BertProcessing" || type == "RobertaProcessing") {
            PostStep step;
            step.items = {{false, {pair_id(j.need("cls"))}}, {true, {}}, {false, {pair_id(j.need("sep"))}}};
            impl_.post.add(std::move(step));
        } else {
            j.broken("a post-processor of type {} is not supported", quote(type));
        }
    }

    /// ["</s>", 2]
    int pair_id(const JsonView& j) const {
        int id = -1;
        j.each([&](const JsonView& e, std::size_t i) {
            if (i == 1) id = checked_id(e);
        });
        if (id < 0) j.broken("expected [token, id]");
        return id;
    }

    void load_template(const JsonView& j) {
        PostStep step;
        j.need("single").each([&](const JsonView& item, std::size_t) {
            if (const auto sequence = item.find("Sequence")) {
                if (sequence->text("id", "A") != "A")
                    sequence->broken("a template for one text can't name a second");
                step.items.push_back({true, {}});
                return;
            }
            const std::string_view name = item.need("SpecialToken").need("id").string();
            std::vector<int> ids;
            j.need("special_tokens").need(name).need("ids").each([&](const JsonView& id, std::size_t) {
                ids.push_back(checked_id(id));
            });
            step.items.push_back({false, std::move(ids)});
        });
        impl_.post.add(std::move(step));
    }

    Tokenizer::Impl& impl_;
    JsonView root_;
};

}  // namespace

void load_tokenizer_json(Tokenizer::Impl& impl, const std::string& name, std::string_view text) {
    const JsonFile file(name, text);
    Loader(impl, file.root()).load();
}

}  // namespace llmgen

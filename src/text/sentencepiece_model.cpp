// sentencepiece's tokenizer.model, through its own library.
#include <sentencepiece_processor.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "text/quote.h"
#include "text/tokenizer_impl.h"
#include "text/unigram.h"

namespace llmgen {
namespace {

/// One field of a protobuf message: the library doesn't tell all that is in a model.
struct Field {
    unsigned number, type;
    std::uint64_t value;     // a varint's
    std::string_view bytes;  // a length-delimited field's
};
std::optional<std::uint64_t> take_varint(std::string_view& in) {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
        const auto b = static_cast<unsigned char>(in[0]);
        in.remove_prefix(1);
        v |= std::uint64_t(b & 0x7F) << shift;
        if (b < 0x80) return v;
    }
    return std::nullopt;
}
std::optional<Field> take_field(std::string_view& in) {
    const auto tag = take_varint(in);
    if (!tag) return std::nullopt;
    Field f{unsigned(*tag >> 3), unsigned(*tag & 7), 0, {}};
    std::size_t n = f.type == 5 ? 4 : f.type == 1 ? 8 : 0;
    if (f.type == 0 || f.type == 2) {
        const auto v = take_varint(in);
        if (!v) return std::nullopt;
        f.value = *v;
        if (f.type == 2) n = std::size_t(*v);
    } else if (n == 0) {
        return std::nullopt;
    }
    if (n > in.size()) return std::nullopt;
    f.bytes = in.substr(0, n);
    in.remove_prefix(n);
    return f;
}

/// What the pieces and the trainer_spec say. Piece types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5
/// unused, 6 byte.
struct ModelFacts {
    bool unigram = true;
    std::vector<float> scores;
    std::vector<int> types;
};
ModelFacts read_facts(std::string_view model) {
    constexpr unsigned kPieces = 1, kTrainerSpec = 2, kScore = 2, kType = 3, kModelType = 3;
    ModelFacts facts;
    while (const auto field = take_field(model)) {
        if (field->type != 2) continue;
        std::string_view inside = field->bytes;
        if (field->number == kTrainerSpec) {
            while (const auto f = take_field(inside))
                if (f->number == kModelType) facts.unigram = f->value == 1;
        } else if (field->number == kPieces) {
            float score = 0;
            int type = 1;
            while (const auto f = take_field(inside)) {
                if (f->number == kScore && f->type == 5) std::memcpy(&score, f->bytes.data(), 4);
                if (f->number == kType) type = int(f->value & 7);
            }
            facts.scores.push_back(score);
            facts.types.push_back(type);
        }
    }
    return facts;
}

/// The library builds tries of the pieces and reads the precompiled_charsmap without looking: an empty piece
/// ends the program, an offset beyond the map reads foreign memory. What could do that is an Error here.
void check_charsmap(const std::string& name, std::string_view map) {
    if (map.empty()) return;
    std::uint32_t size = 0;
    if (map.size() >= 4) std::memcpy(&size, map.data(), 4);
    const auto damaged = [&] { fail("{}: the model's precompiled_charsmap is damaged", name); };
    if (size == 0 || size % 1024 != 0 || map.size() < 4 || size >= map.size() - 4) damaged();
    const std::string_view texts = map.substr(4 + size);
    if (texts.back() != 0) damaged();
    for (std::uint32_t i = 0; i < size / 4; ++i) {
        std::uint32_t unit;
        std::memcpy(&unit, map.data() + 4 + 4 * i, 4);
        const std::uint32_t value = unit & ~(1U << 31), offset = (unit >> 10) << ((unit & (1U << 9)) >> 6);
        if (unit >> 31 ? value >= texts.size() : ((i ^ offset) | 0xFF) >= size / 4) damaged();
    }
}

void check_model(const std::string& name, std::string_view model) {
    constexpr unsigned kPieces = 1, kNormalizerSpec = 3, kDenormalizerSpec = 5, kPiece = 1, kCharsmap = 2;
    while (const auto field = take_field(model)) {
        if (field->type != 2) continue;
        const bool is_spec = field->number == kNormalizerSpec || field->number == kDenormalizerSpec;
        std::string_view inside = field->bytes, piece;
        while (const auto f = take_field(inside)) {
            if (f->type != 2) continue;
            if (is_spec && f->number == kCharsmap) check_charsmap(name, f->bytes);
            if (field->number == kPieces && f->number == kPiece) piece = f->bytes;
        }
        if (field->number == kPieces && (piece.empty() || piece.find('\0') != piece.npos))
            fail("{}: the model has an empty piece, or one with a zero byte", name);
        if (!utf8::is_valid(piece)) fail("{}: the model has a piece that is not UTF-8", name);
    }
    if (!model.empty()) fail("{}: neither a sentencepiece model nor a tiktoken rank file", name);
}

bool is_byte_piece(std::string_view piece) {
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    return piece.size() == 6 && piece.starts_with("<0x") && is_hex(piece[3]) && is_hex(piece[4]);
}

class SentencepieceModel final : public Model {
public:
    SentencepieceModel(const std::string& name, std::string_view bytes) : name_(name) {
        check_model(name, bytes);
        const auto status = processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
        if (!status.ok()) fail("{}: neither a sentencepiece model nor a tiktoken rank file", name);
        const int n = processor_.GetPieceSize();
        if (n > kMaxVocabSize) fail("{}: more than {} pieces", name, kMaxVocabSize);
        vocab_.reserve(std::size_t(n), std::size_t(n) * 8);
        for (int id = 0; id < n; ++id) {
            vocab_.add(processor_.IdToPiece(id), id);
            kinds_ += processor_.IsByte(id) && is_byte_piece(processor_.IdToPiece(id)) ? 'b'
                      : processor_.IsUnknown(id)                                       ? 'u'
                      : processor_.IsControl(id) || processor_.IsUnused(id)            ? 'c'
                                                                                       : 'n';
        }
        make_unigram(read_facts(bytes));
    }
    void encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const override {
        if (unigram_) return unigram_->encode(normalized(piece), ids, scratch);
        scratch.symbols.clear();
        const auto status = processor_.Encode({piece.data(), piece.size()}, &scratch.symbols);
        if (!status.ok())
            fail("{}: sentencepiece failed on this text: {}", name_, quote(status.error_message()));
        ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
    }
    const Vocab& vocab() const override { return vocab_; }
    const std::string& kinds() const { return kinds_; }
    std::optional<std::string> piece(int id) const {
        return id >= 0 && id < vocab_.size() ? std::optional(std::string(vocab_.string(id))) : std::nullopt;
    }
    int bos() const { return processor_.bos_id(); }
    int eos() const { return processor_.eos_id(); }

private:
    // Of equal segmentations the library's version 0.1 takes others than 0.2, the reference: so it only
    // normalizes here, and the search is our own, in the arithmetic of 0.2.
    void make_unigram(const ModelFacts& facts) {
        const auto n = std::size_t(vocab_.size());
        if (!facts.unigram || facts.scores.size() != n || n == 0) return;
        UnigramOptions options;
        options.sentencepiece = true;
        float highest = -std::numeric_limits<float>::infinity();
        for (std::size_t id = 0; id < n; ++id) {
            options.matchable.push_back(facts.types[id] == 1 || facts.types[id] == 4);
            options.byte_fallback = options.byte_fallback || facts.types[id] == 6;
            if (facts.types[id] == 2) options.unk_id = int(id);
            if (facts.types[id] == 1) highest = std::max(highest, facts.scores[id]);
        }
        std::vector<double> scores(facts.scores.begin(), facts.scores.end());
        for (std::size_t id = 0; id < n; ++id)  // always taken
            if (facts.types[id] == 4) scores[id] = double(vocab_.string(int(id)).size()) * highest - 0.1;
        Vocab vocab = vocab_;
        unigram_ = std::make_unique<Unigram>(std::move(vocab), std::move(scores), std::move(options));
    }
    /// The text as the library normalizes it: its pieces, joined.
    std::string normalized(std::string_view text) const {
        std::vector<std::string> pieces;
        const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
        if (!status.ok())
            fail("{}: sentencepiece failed on this text: {}", name_, quote(status.error_message()));
        std::string out;
        for (const std::string& piece : pieces) {
            const int id = vocab_.find(piece);
            if (id >= 0 && kinds_[std::size_t(id)] == 'b')
                out += char(std::stoi(piece.substr(3, 2), nullptr, 16));
            else
                out += piece;
        }
        return out;
    }

    std::string name_;
    std::unique_ptr<Unigram> unigram_;
    sentencepiece::SentencePieceProcessor processor_;
    Vocab vocab_;
    std::string kinds_;
};

SentencepieceDecoding read_normalizer_spec(std::string_view model) {
    constexpr unsigned kNormalizerSpec = 3, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4;
    SentencepieceDecoding d;
    while (const auto field = take_field(model)) {
        if (field->number != kNormalizerSpec || field->type != 2) continue;
        std::string_view spec = field->bytes;
        while (const auto f = take_field(spec)) {
            if (f->number == kAddDummyPrefix) d.add_dummy_prefix = f->value != 0;
            if (f->number == kRemoveExtraWhitespaces) d.remove_extra_whitespaces = f->value != 0;
        }
    }
    return d;
}

/// The model with one more normalizer_spec, which protobuf merges into the first: { add_dummy_prefix: false
/// }.
std::string without_dummy_prefix(std::string_view model) {
    return std::string(model) + std::string("\x1A\x02\x18\x00", 4);
}

}  // namespace

void load_sentencepiece(Tokenizer::Impl& impl,
                        const std::string& name,
                        std::string_view bytes,
                        bool prefix_every_part) {
    auto model = std::make_unique<SentencepieceModel>(name, bytes);
    impl.sentencepiece = true;
    impl.piece_kinds = model->kinds();
    impl.bos = model->piece(model->bos());
    impl.eos = model->piece(model->eos());
    impl.decoder.push_back(make_sentencepiece_decoder(read_normalizer_spec(bytes)));
    impl.model = std::move(model);
    if (!prefix_every_part)
        impl.inner_model = std::make_unique<SentencepieceModel>(name, without_dummy_prefix(bytes));
    impl.is_model_file = true;
    impl.adds_bos = impl.bos.has_value();
}

}  // namespace llmgen

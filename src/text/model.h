// A piece of text to ids: BPE or Unigram, and the scratch memory that encoding works in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace llmgen {

/// Remembers the ids of short pieces: words repeat. Bounded; forgets all at once when full.
class PieceCache {
public:
    static constexpr std::size_t kMaxPiece = 40;
    /// Appends the ids and returns true if `piece` is known.
    bool find(std::string_view piece, std::uint64_t hash, std::vector<int>& ids) const;
    void add(std::string_view piece, std::uint64_t hash, const int* ids, std::size_t n);

private:
    struct Slot {
        std::uint64_t hash = 0;
        std::uint32_t text = 0, first = 0;
        std::uint16_t length = 0, n = 0;
        bool used = false;
    };
    std::vector<Slot> slots_;
    std::string texts_;
    std::vector<int> ids_;
    std::size_t n_used_ = 0;
};

/// Memory that one encode call uses; pooled by the tokenizer, so that calls don't allocate.
struct ModelScratch {
    PieceCache cache;
    std::vector<int> symbols, previous, next;
    std::vector<std::uint64_t> heap;
    std::string buffer;
    std::vector<double> scores;
    std::vector<std::int32_t> starts, nodes;
};

class Model {
public:
    virtual ~Model() = default;
    /// Appends the ids of one piece, which is not empty. Throws Error where the reference does (no unk
    /// token).
    virtual void encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const = 0;
    /// The strings as the file has them, apart from byte-level vocabularies, which hold raw bytes.
    virtual const Vocab& vocab() const = 0;
};

}  // namespace llmgen

// Byte-pair encoding: the piece's characters (or bytes), merged by rank, then from the left.
//
// Cost: pieces of up to kShort symbols by scanning (the constant wins), longer ones with a heap, O(n log n).
// Where no merge can ever join a character to a following U+2581, a sentencepiece-style text is cut there
// first: the ids are the same, and words come out of the cache.
#pragma once

#include <string>
#include <vector>

#include "text/model.h"

namespace llmgen {

/// (left id, right id) → rank, one 64-bit word each.
class MergeTable {
public:
    static constexpr std::uint32_t kNoRank = ~std::uint32_t(0);
    static constexpr std::size_t kMaxMerges = std::size_t(1) << 22;
    void reserve(std::size_t n);
    /// The last rank given for a pair wins, as in the reference. Ids < kMaxVocabSize, rank < kMaxMerges.
    void add(int left, int right, std::uint32_t rank, int merged);
    std::uint32_t rank(int left, int right) const {
        const std::uint64_t key = std::uint64_t(left) << 21 | std::uint64_t(right);
        for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
            if (slots_[i] >> 22 == key) return std::uint32_t(slots_[i] & (kMaxMerges - 1));
            if (slots_[i] == kEmpty) return kNoRank;
        }
    }
    int merged(std::uint32_t rank) const { return merged_[rank]; }
    std::size_t size() const { return n_used_; }

private:
    static constexpr std::uint64_t kEmpty = ~std::uint64_t(0);
    std::size_t slot_of(std::uint64_t key) const {
        return std::size_t((key * 0x9E3779B97F4A7C15U) >> shift_);
    }
    void grow(int log2_slots);

    std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(2, kEmpty);
    std::size_t mask_ = 1, n_used_ = 0;
    int shift_ = 63;
    std::vector<int> merged_;
};

struct BpeOptions {
    bool raw_bytes = false;  // pieces and vocabulary are bytes, each of them a symbol; else UTF-8, characters
    bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
    bool has_unk = false;  // unknown characters become unk_id; else they vanish
    int unk_id = -1;       // -1: unk_token is not in the vocabulary, an Error at the first unknown character
    std::string unk_token, continuing_prefix, end_suffix;
};

class Bpe final : public Model {
public:
    Bpe(Vocab vocab, MergeTable merges, BpeOptions options);
    void encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const override;
    const Vocab& vocab() const override { return vocab_; }

private:
    void encode_whole(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const;
    void first_symbols(std::string_view piece, std::vector<int>& symbols, std::string& buffer) const;
    void merge_short(std::vector<int>& symbols) const;
    void merge_long(ModelScratch& scratch) const;
    int unk_id() const;
    bool words_never_join() const;

    Vocab vocab_;
    MergeTable merges_;
    BpeOptions options_;
    std::vector<int> byte_ids_;      // raw_bytes: [4][256] by is_first, is_last; -1 none
    std::vector<int> fallback_ids_;  // [256] of "<0x00>"…; -1 none
    bool cut_words_ = false;
};

}  // namespace llmgen

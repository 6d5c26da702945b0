// Unigram: the most likely segmentation of a piece (Viterbi), as sentencepiece and the reference's optimized
// version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/model.h"

namespace llmgen {

struct UnigramOptions {
    std::optional<int> unk_id;
    bool byte_fallback = false;
    /// sentencepiece's own arithmetic: sums in single precision, which decides between equal segmentations.
    /// Pieces that `matchable` leaves out (control, unknown, unused, byte) are not found in the text.
    bool sentencepiece = false;
    std::vector<bool> matchable = {};
};

class Unigram final : public Model {
public:
    /// `scores[id]` is the log probability of piece id. Every id below vocab.size() must be a piece.
    Unigram(Vocab vocab, std::vector<double> scores, UnigramOptions options);
    void encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const override;
    const Vocab& vocab() const override { return vocab_; }

private:
    struct Edge {
        std::uint32_t node = 0;
        std::uint32_t child = 0;  // 0 = empty slot
        std::uint8_t byte = 0;
    };
    std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
    void insert(std::string_view piece);
    std::size_t slot_of(std::uint32_t node, std::uint8_t byte) const;
    void emit_unknown(std::string_view text, std::vector<int>& ids) const;

    Vocab vocab_;
    std::vector<double> scores_;
    UnigramOptions options_;
    std::vector<int> fallback_ids_;  // 256, or empty without byte fallback
    double unk_score_ = 0;
    std::vector<Edge> edges_;
    std::vector<std::int32_t> ids_of_node_;  // -1: no piece ends here
};

}  // namespace llmgen

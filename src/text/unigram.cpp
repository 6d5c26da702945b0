#include "text/unigram.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "text/quote.h"

namespace llmgen {
namespace {
constexpr double kUnkPenalty = 10;  // an unknown character costs this much more than the worst piece
}

Unigram::Unigram(Vocab vocab, std::vector<double> scores, UnigramOptions options)
    : vocab_(std::move(vocab)), scores_(std::move(scores)), options_(std::move(options)) {
    const auto matchable = [&](int id) {
        return options_.matchable.empty() || options_.matchable[std::size_t(id)];
    };
    double lowest = std::numeric_limits<double>::infinity();
    std::size_t n_bytes = 0;
    for (int id = 0; id < vocab_.size(); ++id) {
        if (matchable(id)) lowest = std::min(lowest, scores_[std::size_t(id)]);
        n_bytes += vocab_.string(id).size();
    }
    unk_score_ = lowest - kUnkPenalty;
    edges_.resize(std::bit_ceil(n_bytes * 2 + 2));
    ids_of_node_.push_back(-1);
    for (int id = 0; id < vocab_.size(); ++id)
        if (matchable(id)) insert(vocab_.string(id));
    if (!options_.byte_fallback) return;
    fallback_ids_.resize(256);
    for (int b = 0; b < 256; ++b) fallback_ids_[std::size_t(b)] = vocab_.find(fmt::format("<0x{:02X}>", b));
}

std::size_t Unigram::slot_of(std::uint32_t node, std::uint8_t byte) const {
    return std::size_t(((std::uint64_t(node) << 8 | byte) * 0x9E3779B97F4A7C15U) >> 20) & (edges_.size() - 1);
}

std::uint32_t Unigram::child(std::uint32_t node, std::uint8_t byte) const {
    for (std::size_t i = slot_of(node, byte); edges_[i].child != 0; i = (i + 1) & (edges_.size() - 1))
        if (edges_[i].node == node && edges_[i].byte == byte) return edges_[i].child;
    return 0;
}

void Unigram::insert(std::string_view piece) {
    if (piece.empty()) return;
    std::uint32_t node = 0;
    for (char c : piece) {
        const auto byte = static_cast<std::uint8_t>(c);
        std::uint32_t next = child(node, byte);
        if (next == 0) {
            next = std::uint32_t(ids_of_node_.size());
            ids_of_node_.push_back(-1);
            std::size_t i = slot_of(node, byte);
            while (edges_[i].child != 0) i = (i + 1) & (edges_.size() - 1);
            edges_[i] = {node, next, byte};
        }
        node = next;
    }
    ids_of_node_[node] = vocab_.find(piece);  // of equal pieces the last one, as in the reference's table
}

// best[i]: score, start and piece of the best segmentation of the first i bytes. A later candidate must be
// better, not equal, so of equals the one that begins first wins.
void Unigram::encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const {
    const std::size_t n = piece.size();
    std::vector<double>& score = scratch.scores;
    std::vector<std::int32_t>&start = scratch.starts, &node_id = scratch.nodes;
    score.assign(n + 1, 0);
    start.assign(n + 1, -1);
    node_id.assign(n + 1, -1);
    const auto offer = [&](std::size_t begin, std::size_t end, double s, int id) {
        if (options_.sentencepiece) s = double(float(s));
        if (start[end] >= 0 && s <= score[end]) return;
        score[end] = s;
        start[end] = std::int32_t(begin);
        node_id[end] = id;
    };
    for (std::size_t at = 0, length; at < n; at += length) {
        const auto lead = static_cast<unsigned char>(piece[at]);
        length = std::min<std::size_t>(lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4, n - at);
        bool single = false;
        std::uint32_t node = 0;
        for (std::size_t end = at; end < n;) {
            node = child(node, static_cast<std::uint8_t>(piece[end++]));
            if (node == 0) break;
            const int id = ids_of_node_[node];
            if (id < 0) continue;
            offer(at, end, score[at] + scores_[std::size_t(id)], id);
            single = single || end - at == length;
        }
        if (!single) {
            if (!options_.unk_id)
                fail("the tokenizer has no unk_id, and the text has a character outside its vocabulary");
            offer(at, at + length, score[at] + unk_score_, *options_.unk_id);
        }
    }
    // Backwards: the pieces, unknown neighbours fused.
    std::vector<std::int32_t>& cuts = scratch.symbols;
    cuts.clear();
    const auto is_unk = [&](std::size_t end) { return options_.unk_id && node_id[end] == *options_.unk_id; };
    for (std::size_t end = n; end > 0;) {
        cuts.push_back(std::int32_t(end));
        std::size_t begin = std::size_t(start[end]);
        if (is_unk(end))
            while (begin > 0 && is_unk(begin)) begin = std::size_t(start[begin]);
        end = begin;
    }
    std::size_t begin = 0;
    for (auto it = cuts.rbegin(); it != cuts.rend(); ++it) {
        const auto end = std::size_t(*it);
        if (is_unk(end))
            emit_unknown(piece.substr(begin, end - begin), ids);
        else
            ids.push_back(node_id[end]);
        begin = end;
    }
}

void Unigram::emit_unknown(std::string_view text, std::vector<int>& ids) const {
    // The reference looks fused characters up again, which finds the unknown piece's own string.
    const int id = options_.sentencepiece ? -1 : vocab_.find(text);
    if (id >= 0) {
        ids.push_back(id);
        return;
    }
    const auto fallback = [&](char b) { return fallback_ids_[static_cast<unsigned char>(b)]; };
    if (!fallback_ids_.empty() &&
        std::all_of(text.begin(), text.end(), [&](char b) { return fallback(b) >= 0; })) {
        for (char b : text) ids.push_back(fallback(b));
        return;
    }
    ids.push_back(*options_.unk_id);
}

}  // namespace llmgen

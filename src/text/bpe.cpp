#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/utf8.h"
#include "text/quote.h"

namespace llmgen {
namespace {
constexpr std::size_t kShort = 48;  // symbols; measured crossover of scanning and heap
constexpr std::string_view kSpaceMark = "\u2581";

std::size_t char_length(std::string_view text, std::size_t at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return std::min(n, text.size() - at);
}
}  // namespace

void MergeTable::reserve(std::size_t n) {
    merged_.reserve(n);
    const int log2_slots = std::bit_width(n * 2);
    if ((std::size_t(1) << log2_slots) > slots_.size()) grow(log2_slots);
}

void MergeTable::grow(int log2_slots) {
    std::vector<std::uint64_t> old(std::size_t(1) << log2_slots, kEmpty);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    shift_ = 64 - log2_slots;
    for (std::uint64_t s : old) {
        if (s == kEmpty) continue;
        std::size_t i = slot_of(s >> 22);
        while (slots_[i] != kEmpty) i = (i + 1) & mask_;
        slots_[i] = s;
    }
}

void MergeTable::add(int left, int right, std::uint32_t rank, int merged) {
    CHECK(left >= 0 && left < kMaxVocabSize && right >= 0 && right < kMaxVocabSize && rank < kMaxMerges);
    if (merged_.size() <= rank) merged_.resize(std::size_t(rank) + 1, -1);
    merged_[rank] = merged;
    if ((n_used_ + 1) * 2 > slots_.size()) grow(std::bit_width(slots_.size()));
    const std::uint64_t key = std::uint64_t(left) << 21 | std::uint64_t(right);
    std::size_t i = slot_of(key);
    for (; slots_[i] != kEmpty; i = (i + 1) & mask_) {
        if (slots_[i] >> 22 == key) {
            slots_[i] = key << 22 | rank;
            return;
        }
    }
    slots_[i] = key << 22 | rank;
    ++n_used_;
}

Bpe::Bpe(Vocab vocab, MergeTable merges, BpeOptions options)
    : vocab_(std::move(vocab)), merges_(std::move(merges)), options_(std::move(options)) {
    if (options_.byte_fallback) {
        fallback_ids_.resize(256);
        for (int b = 0; b < 256; ++b)
            fallback_ids_[std::size_t(b)] = vocab_.find(fmt::format("<0x{:02X}>", b));
    }
    if (options_.raw_bytes) {
        byte_ids_.resize(4 * 256);
        for (unsigned kind = 0; kind < 4; ++kind) {
            for (unsigned b = 0; b < 256; ++b) {
                const std::string symbol = (kind & 1 ? "" : options_.continuing_prefix) + char(b) +
                                           (kind & 2 ? options_.end_suffix : "");
                byte_ids_[kind * 256 + b] = vocab_.find(symbol);
            }
        }
    }
    cut_words_ = words_never_join();
}

// Whether no token has U+2581 after another character, so that no merge crosses the start of a word. U+2581
// must be a token itself, or unknown characters on both sides would fuse over the cut.
bool Bpe::words_never_join() const {
    if (options_.raw_bytes || options_.ignore_merges || !options_.continuing_prefix.empty() ||
        !options_.end_suffix.empty())
        return false;
    if (vocab_.find(kSpaceMark) < 0) return false;
    for (int id = 0; id < vocab_.size(); ++id) {
        const std::string_view token = vocab_.string(id);
        for (std::size_t at = token.find(kSpaceMark); at != token.npos;
             at = token.find(kSpaceMark, at + kSpaceMark.size()))
            if (at != 0 && !token.substr(0, at).ends_with(kSpaceMark)) return false;
    }
    return true;
}

int Bpe::unk_id() const {
    if (options_.unk_id < 0)
        fail("the tokenizer's unk_token {} is not in its vocabulary, and the text needs it",
             quote(options_.unk_token));
    return options_.unk_id;
}

// The reference keeps one pending unknown, flushed by the next known character but not by byte fallback: so
// bytes of a later character can come before it.
void Bpe::first_symbols(std::string_view piece, std::vector<int>& symbols, std::string& buffer) const {
    symbols.clear();
    bool pending = false;
    const auto flush = [&] {
        if (pending) symbols.push_back(unk_id());
        pending = false;
    };
    for (std::size_t at = 0, n; at < piece.size(); at += n) {
        n = options_.raw_bytes ? 1 : char_length(piece, at);
        const bool is_first = at == 0, is_last = at + n == piece.size();
        const std::string_view c = piece.substr(at, n);
        int id;
        if (options_.raw_bytes) {
            id = byte_ids_[(unsigned(is_first) | unsigned(is_last) << 1) * 256 +
                           static_cast<unsigned char>(c[0])];
        } else if ((is_first || options_.continuing_prefix.empty()) &&
                   (!is_last || options_.end_suffix.empty())) {
            id = vocab_.find(c);
        } else {
            buffer.assign(is_first ? "" : options_.continuing_prefix)
                .append(c)
                .append(is_last ? options_.end_suffix : "");
            id = vocab_.find(buffer);
        }
        if (id >= 0) {
            flush();
            symbols.push_back(id);
            continue;
        }
        if (options_.byte_fallback) {
            const std::string_view bytes =
                (is_first || options_.continuing_prefix.empty()) && (!is_last || options_.end_suffix.empty())
                    ? c
                    : buffer;
            const auto fallback = [&](char b) { return fallback_ids_[static_cast<unsigned char>(b)]; };
            if (std::all_of(bytes.begin(), bytes.end(), [&](char b) { return fallback(b) >= 0; })) {
                for (char b : bytes) symbols.push_back(fallback(b));
                continue;
            }
        }
        if (options_.has_unk) {
            if (!options_.fuse_unk) flush();
            if (!pending) unk_id();  // an Error here if there is none
            pending = true;
        }
    }
    flush();
}

void Bpe::merge_short(std::vector<int>& symbols) const {
    std::uint32_t ranks[kShort];
    std::size_t n = symbols.size();
    int* s = symbols.data();
    for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = merges_.rank(s[i], s[i + 1]);
    while (n > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < n; ++i)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == MergeTable::kNoRank) break;
        s[best] = merges_.merged(ranks[best]);
        std::copy(s + best + 2, s + n, s + best + 1);
        if (best + 2 < n) std::copy(ranks + best + 2, ranks + n - 1, ranks + best + 1);
        --n;
        if (best > 0) ranks[best - 1] = merges_.rank(s[best - 1], s[best]);
        if (best + 1 < n) ranks[best] = merges_.rank(s[best], s[best + 1]);
    }
    symbols.resize(n);
}

// Heap entries are rank << 32 | position, the smallest on top; an entry whose pair has changed since no
// longer has its rank and is dropped.
void Bpe::merge_long(ModelScratch& scratch) const {
    std::vector<int>&s = scratch.symbols, &previous = scratch.previous, &next = scratch.next;
    const int n = int(s.size());
    previous.resize(s.size());
    next.resize(s.size());
    std::vector<std::uint64_t>& heap = scratch.heap;
    heap.clear();
    const auto entry = [](std::uint32_t rank, int at) {
        return std::uint64_t(rank) << 32 | std::uint32_t(at);
    };
    for (int i = 0; i < n; ++i) {
        previous[std::size_t(i)] = i - 1;
        next[std::size_t(i)] = i + 1 < n ? i + 1 : -1;
        if (i + 1 == n) break;
        const std::uint32_t rank = merges_.rank(s[std::size_t(i)], s[std::size_t(i) + 1]);
        if (rank != MergeTable::kNoRank) heap.push_back(entry(rank, i));
    }
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    const auto push = [&](int left, int right) {
        const std::uint32_t rank = merges_.rank(s[std::size_t(left)], s[std::size_t(right)]);
        if (rank == MergeTable::kNoRank) return;
        heap.push_back(entry(rank, left));
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
    };
    while (!heap.empty()) {
        const auto at = std::size_t(std::uint32_t(heap.front()));
        const auto rank = std::uint32_t(heap.front() >> 32);
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        heap.pop_back();
        if (s[at] < 0 || next[at] < 0) continue;  // merged into its left neighbour since, or the last one
        const auto right = std::size_t(next[at]);
        if (merges_.rank(s[at], s[right]) != rank) continue;
        s[at] = merges_.merged(rank);
        s[right] = -1;
        next[at] = next[right];
        if (next[at] >= 0) {
            previous[std::size_t(next[at])] = int(at);
            push(int(at), next[at]);
        }
        if (previous[at] >= 0) push(previous[at], int(at));
    }
    s.erase(std::remove(s.begin(), s.end(), -1), s.end());
}

void Bpe::encode_whole(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const {
    const std::uint64_t hash = hash_bytes(piece);
    const bool cached = piece.size() <= PieceCache::kMaxPiece;
    if (cached && scratch.cache.find(piece, hash, ids)) return;
    const std::size_t before = ids.size();
    const int whole = options_.ignore_merges ? vocab_.find(piece, hash) : -1;
    if (whole >= 0) {
        ids.push_back(whole);
    } else {
        first_symbols(piece, scratch.symbols, scratch.buffer);
        if (scratch.symbols.size() <= kShort)
            merge_short(scratch.symbols);
        else
            merge_long(scratch);
        ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
    }
    if (cached) scratch.cache.add(piece, hash, ids.data() + before, ids.size() - before);
}

void Bpe::encode(std::string_view piece, std::vector<int>& ids, ModelScratch& scratch) const {
    if (!cut_words_) return encode_whole(piece, ids, scratch);
    std::size_t begin = 0;
    while (begin < piece.size()) {
        std::size_t end = begin;
        while (piece.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
        end = std::min(piece.find(kSpaceMark, end), piece.size());
        encode_whole(piece.substr(begin, end - begin), ids, scratch);
        begin = end;
    }
}

bool PieceCache::find(std::string_view piece, std::uint64_t hash, std::vector<int>& ids) const {
    if (slots_.empty()) return false;
    for (std::size_t i = hash & (slots_.size() - 1); slots_[i].used; i = (i + 1) & (slots_.size() - 1)) {
        const Slot& s = slots_[i];
        if (s.hash != hash || std::string_view(texts_).substr(s.text, s.length) != piece) continue;
        ids.insert(ids.end(), ids_.begin() + s.first, ids_.begin() + s.first + s.n);
        return true;
    }
    return false;
}

void PieceCache::add(std::string_view piece, std::uint64_t hash, const int* ids, std::size_t n) {
    constexpr std::size_t kSlots = 1 << 16, kMaxUsed = kSlots / 2;
    if (n_used_ == kMaxUsed) {
        slots_.assign(slots_.size(), {});
        texts_.clear();
        ids_.clear();
        n_used_ = 0;
    }
    if (slots_.empty() || n_used_ * 2 >= slots_.size()) {  // grows up to kSlots
        std::vector<Slot> old(slots_.empty() ? 1024 : slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& s : old) {
            if (!s.used) continue;
            std::size_t i = s.hash & (slots_.size() - 1);
            while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = s;
        }
    }
    std::size_t i = hash & (slots_.size() - 1);
    while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {hash,
                 std::uint32_t(texts_.size()),
                 std::uint32_t(ids_.size()),
                 std::uint16_t(piece.size()),
                 std::uint16_t(n),
                 true};
    texts_ += piece;
    ids_.insert(ids_.end(), ids, ids + n);
    ++n_used_;
}

}  // namespace llmgen

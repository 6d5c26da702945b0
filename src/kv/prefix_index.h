// Which page holds the keys and values of which prefix.
//
//   entry of a page = (node of the page before it, the 16 tokens in it, salt)      node: a number never used
//   twice found by          hash(hash of the page before it, the 16 tokens)
//
// The hash only finds candidates. A hit is exact: the tokens are equal, and so is the node of the page
// before, which stands for the whole prefix up to there. Node numbers aren't reused, so an entry whose parent
// was evicted can't come back to life behind another parent. Requests of different salt begin at different
// roots.
//
// Integers only: what the pages contain is the runner's business.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen {

inline constexpr int kTokensPerPage = 16;  // as ops/batch.h: kPageSize

/// How far a sequence's pages are known to the index.
struct PrefixLink {
    std::uint64_t node = 0;  // of the last page; 0 = the root
    std::uint64_t hash = 0;  // of everything up to and including it
};

class PrefixIndex {
public:
    using Hash = std::uint64_t (*)(std::uint64_t parent, std::span<const int> tokens);
    static std::uint64_t chain_hash(std::uint64_t parent, std::span<const int> tokens);

    /// `domain` tells one model's pages from another's (checkpoint and element type). `hash` is replaced by
    /// tests to show that collisions change nothing.
    PrefixIndex(int n_pages, std::string_view domain, Hash hash = chain_hash);

    PrefixLink root(std::string_view salt) const;
    /// The page that continues `parent` with `tokens` (kTokensPerPage of them), or -1.
    int find(const PrefixLink& parent, std::span<const int> tokens, std::string_view salt) const;
    /// Makes `page` that page. The page must not be in the index, nor its content.
    void insert(int page, const PrefixLink& parent, std::span<const int> tokens, std::string_view salt);
    void erase(int page);

    bool contains(int page) const { return entries_[std::size_t(page)].node != 0; }
    /// The link that ends with `page`.
    PrefixLink link(int page) const {
        return {entries_[std::size_t(page)].node, entries_[std::size_t(page)].hash};
    }
    int size() const { return size_; }
    /// Empty where every chain is sound, else what is wrong.
    std::string fault() const;

private:
    struct Entry {
        std::uint64_t node = 0;    // 0: not in the index
        std::uint64_t parent = 0;  // node
        std::uint64_t hash = 0;
        std::array<int, kTokensPerPage> tokens{};
        std::string salt;  // of entries whose parent is the root
        int next = -1;     // page in the same bucket
    };
    std::size_t bucket(std::uint64_t hash) const { return std::size_t(hash) & (heads_.size() - 1); }

    Hash hash_;
    std::uint64_t domain_ = 0;
    std::uint64_t last_node_ = 0;
    std::vector<Entry> entries_;  // by page
    std::vector<int> heads_;      // buckets, a power of two of them
    int size_ = 0;
};

}  // namespace llmgen

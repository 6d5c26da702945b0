// The pages of keys and values: who holds which, and which are kept for the prefix they hold.
//
//   free      nobody's, content worthless           taken first, the most recently freed before others, so
//                                                   that memory that was never touched stays untouched
//   cached    nobody's, but in the prefix index     taken when no free page is left, least recently used
//   first in use    held by one or more page tables       full pages may be shared, read-only
//
//   free + cached + in use = all; free + cached = what can be had.
//
// A page table grows with reserve(), is entered into the index with publish() once the tokens are computed
// (never before: a neighbour could read what isn't there yet), and gives everything back with release(). Only
// full pages are shared, so nobody ever writes to a page that another reads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/prefix_index.h"

namespace llmgen {

/// The pages of one sequence, in order.
struct PageTable {
    std::vector<int> pages;
    std::string salt;      // sequences of different salt share nothing
    PrefixLink published;  // the last page that the index knows
    int n_published = 0;   // pages, from the front
};

class PagePool {
public:
    /// `prefix_cache` off: nothing is ever shared or kept.
    PagePool(int n_pages,
             bool prefix_cache,
             std::string_view domain = "",
             PrefixIndex::Hash hash = PrefixIndex::chain_hash);

    /// Gives an empty table the cached pages of the longest known prefix of `tokens`, at most `limit` tokens
    /// (the caller leaves at least one to compute). Returns the number of tokens, a multiple of the page.
    int attach(PageTable& table, std::span<const int> tokens, int limit);
    /// Pages for `n_tokens` in all. False, and nothing changed, where there aren't enough.
    bool reserve(PageTable& table, int n_tokens);
    /// The first `n_computed` of `tokens` are stored: enters what full pages they fill into the index.
    void publish(PageTable& table, std::span<const int> tokens, int n_computed);
    void release(PageTable& table);

    static int pages_for(int n_tokens) { return (n_tokens + kTokensPerPage - 1) / kTokensPerPage; }
    int total() const { return int(pages_.size()); }
    int cached() const { return n_cached_; }
    int available() const { return int(free_.size()) + n_cached_; }
    int in_use() const { return total() - available(); }

    /// Empty where all is sound, given all page tables that exist; else what is wrong. For tests.
    std::string check_integrity(std::span<const PageTable* const> tables) const;

private:
    struct Page {
        int references = 0;
        int older = -1, newer = -1;  // neighbours in the list of cached pages
    };
    int take();
    void cache(int page);    // to the newest end
    void uncache(int page);  // out of the list

    bool prefix_cache_;
    PrefixIndex index_;
    std::vector<Page> pages_;
    std::vector<int> free_;          // the last one is taken first
    int oldest_ = -1, newest_ = -1;  // of the cached pages
    int n_cached_ = 0;
};

}  // namespace llmgen

#include "kv/page_pool.h"

#include <algorithm>

#include "base/error.h"

namespace llmgen {

PagePool::PagePool(int n_pages, bool prefix_cache, std::string_view domain, PrefixIndex::Hash hash)
    : prefix_cache_(prefix_cache), index_(n_pages, domain, hash), pages_(std::size_t(n_pages)) {
    free_.reserve(std::size_t(n_pages));
    for (int page = n_pages - 1; page >= 0; --page) free_.push_back(page);
}

int PagePool::attach(PageTable& table, std::span<const int> tokens, int limit) {
    CHECK(table.pages.empty(), "attach() to a table of {} pages", table.pages.size());
    table.published = index_.root(table.salt);
    table.n_published = 0;
    if (!prefix_cache_) return 0;
    const int n_pages = std::min(limit, int(tokens.size())) / kTokensPerPage;
    for (int i = 0; i < n_pages; ++i) {
        const int page = index_.find(
            table.published, tokens.subspan(std::size_t(i) * kTokensPerPage, kTokensPerPage), table.salt);
        if (page < 0) break;
        if (pages_[std::size_t(page)].references++ == 0) uncache(page);
        table.pages.push_back(page);
        table.published = index_.link(page);
        ++table.n_published;
    }
    return table.n_published * kTokensPerPage;
}

bool PagePool::reserve(PageTable& table, int n_tokens) {
    const int missing = pages_for(n_tokens) - int(table.pages.size());
    if (missing > available()) return false;
    for (int i = 0; i < missing; ++i) {
        const int page = take();
        pages_[std::size_t(page)].references = 1;
        table.pages.push_back(page);
    }
    return true;
}

void PagePool::publish(PageTable& table, std::span<const int> tokens, int n_computed) {
    if (!prefix_cache_) return;
    for (; (table.n_published + 1) * kTokensPerPage <= n_computed; ++table.n_published) {
        const auto content = tokens.subspan(std::size_t(table.n_published) * kTokensPerPage, kTokensPerPage);
        int page = index_.find(table.published, content, table.salt);
        if (page < 0) {  // else another sequence was first: this one keeps its copy to itself
            page = table.pages[std::size_t(table.n_published)];
            index_.insert(page, table.published, content, table.salt);
        }
        table.published = index_.link(page);
    }
}

// The end of a sequence is given back first, so that it's the oldest of its pages and goes before the
// beginning, without which it can't be found.
void PagePool::release(PageTable& table) {
    for (auto page = table.pages.rbegin(); page != table.pages.rend(); ++page) {
        Page& p = pages_[std::size_t(*page)];
        CHECK(p.references > 0, "page {} is not in use", *page);
        if (--p.references > 0) continue;
        if (index_.contains(*page))
            cache(*page);
        else
            free_.push_back(*page);
    }
    table.pages.clear();
    table.published = {};
    table.n_published = 0;
}

int PagePool::take() {
    if (!free_.empty()) {
        const int page = free_.back();
        free_.pop_back();
        return page;
    }
    const int page = oldest_;
    uncache(page);
    index_.erase(page);
    return page;
}

void PagePool::cache(int page) {
    Page& p = pages_[std::size_t(page)];
    p.older = newest_;
    p.newer = -1;
    (newest_ >= 0 ? pages_[std::size_t(newest_)].newer : oldest_) = page;
    newest_ = page;
    ++n_cached_;
}

void PagePool::uncache(int page) {
    Page& p = pages_[std::size_t(page)];
    (p.older >= 0 ? pages_[std::size_t(p.older)].newer : oldest_) = p.newer;
    (p.newer >= 0 ? pages_[std::size_t(p.newer)].older : newest_) = p.older;
    p.older = p.newer = -1;
    --n_cached_;
}

std::string PagePool::check_integrity(std::span<const PageTable* const> tables) const {
    enum { kNowhere, kFree, kCached, kInUse };
    std::vector<int> place(pages_.size(), kNowhere);
    std::vector<int> held(pages_.size(), 0);
    for (const int page : free_) {
        if (place[std::size_t(page)] != kNowhere) return fmt::format("page {} is free twice", page);
        if (index_.contains(page)) return fmt::format("page {} is free and in the index", page);
        place[std::size_t(page)] = kFree;
    }
    int n_cached = 0;
    for (int page = oldest_, last = -1; page >= 0; last = page, page = pages_[std::size_t(page)].newer) {
        if (place[std::size_t(page)] != kNowhere) return fmt::format("page {} is cached and elsewhere", page);
        if (!index_.contains(page)) return fmt::format("page {} is cached but not in the index", page);
        if (pages_[std::size_t(page)].older != last) return fmt::format("page {}: broken list", page);
        place[std::size_t(page)] = kCached;
        ++n_cached;
    }
    if (n_cached != n_cached_) return fmt::format("{} cached pages, {} counted", n_cached, n_cached_);
    for (const PageTable* table : tables) {
        if (table->n_published > int(table->pages.size())) return "more pages published than held";
        for (const int page : table->pages) {
            if (place[std::size_t(page)] == kFree || place[std::size_t(page)] == kCached)
                return fmt::format("page {} is in use and also free or cached", page);
            place[std::size_t(page)] = kInUse;
            ++held[std::size_t(page)];
            if (held[std::size_t(page)] > 1 && !index_.contains(page))
                return fmt::format("page {} is shared but not in the index", page);
        }
    }
    for (std::size_t page = 0; page < pages_.size(); ++page) {
        if (place[page] == kNowhere) return fmt::format("page {} is lost", page);
        if (held[page] != pages_[page].references)
            return fmt::format("page {}: {} references, {} holders", page, pages_[page].references,
                               held[page]);
    }
    return index_.fault();
}

}  // namespace llmgen

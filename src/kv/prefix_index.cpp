#include "kv/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace llmgen {

std::uint64_t PrefixIndex::chain_hash(std::uint64_t parent, std::span<const int> tokens) {
    return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

PrefixIndex::PrefixIndex(int n_pages, std::string_view domain, Hash hash)
    : hash_(hash),
      domain_(XXH3_64bits(domain.data(), domain.size())),
      entries_(std::size_t(n_pages)),
      heads_(std::bit_ceil(std::size_t(std::max(n_pages, 1))), -1) {}

PrefixLink PrefixIndex::root(std::string_view salt) const {
    return {0, XXH3_64bits_withSeed(salt.data(), salt.size(), domain_)};
}

int PrefixIndex::find(const PrefixLink& parent, std::span<const int> tokens, std::string_view salt) const {
    const std::uint64_t hash = hash_(parent.hash, tokens);
    for (int page = heads_[bucket(hash)]; page >= 0; page = entries_[std::size_t(page)].next) {
        const Entry& entry = entries_[std::size_t(page)];
        if (entry.hash == hash && entry.parent == parent.node && std::ranges::equal(entry.tokens, tokens) &&
            (parent.node != 0 || entry.salt == salt))
            return page;
    }
    return -1;
}

void PrefixIndex::insert(int page,
                         const PrefixLink& parent,
                         std::span<const int> tokens,
                         std::string_view salt) {
    Entry& entry = entries_[std::size_t(page)];
    CHECK(entry.node == 0, "page {} is in the index already", page);
    CHECK(tokens.size() == kTokensPerPage);
    entry.node = ++last_node_;
    entry.parent = parent.node;
    entry.hash = hash_(parent.hash, tokens);
    std::ranges::copy(tokens, entry.tokens.begin());
    entry.salt = parent.node == 0 ? salt : std::string_view();
    int& head = heads_[bucket(entry.hash)];
    entry.next = head;
    head = page;
    ++size_;
}

void PrefixIndex::erase(int page) {
    Entry& entry = entries_[std::size_t(page)];
    CHECK(entry.node != 0, "page {} is not in the index", page);
    int* at = &heads_[bucket(entry.hash)];
    while (*at != page) at = &entries_[std::size_t(*at)].next;
    *at = entry.next;
    entry.node = 0;
    entry.next = -1;
    --size_;
}

std::string PrefixIndex::fault() const {
    int found = 0;
    for (std::size_t b = 0; b < heads_.size(); ++b)
        for (int page = heads_[b]; page >= 0; page = entries_[std::size_t(page)].next) {
            const Entry& entry = entries_[std::size_t(page)];
            if (entry.node == 0)
                return fmt::format("bucket {} lists page {}, which is not in the index", b, page);
            if (bucket(entry.hash) != b) return fmt::format("page {} is in bucket {}, not its own", page, b);
            if (++found > size_) return "a bucket's list runs in a circle or the size is wrong";
        }
    return found == size_ ? "" : fmt::format("{} entries in buckets, size says {}", found, size_);
}

}  // namespace llmgen

// Strings ↔ ids: one arena of bytes and one open-addressing table, so that 128k entries load in milliseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen {

/// Ids are below this everywhere; it keeps a pair of ids and a rank in one 64-bit word.
inline constexpr int kMaxVocabSize = (1 << 21) - 1;

std::uint64_t hash_bytes(std::string_view bytes);

class Vocab {
public:
    void reserve(std::size_t n_tokens, std::size_t n_bytes);
    /// The last id given for a string wins, as in a JSON object. `findable` false: string() knows it, find()
    /// doesn't. `id` must be in [0, kMaxVocabSize).
    void add(std::string_view bytes, int id, bool findable = true);
    /// -1 where there is none.
    int find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
    int find(std::string_view bytes, std::uint64_t hash) const;

    /// Largest id + 1.
    int size() const { return int(entries_.size()); }
    /// Number of different findable strings.
    std::size_t count() const { return n_used_; }
    bool has(int id) const { return id >= 0 && id < size() && entries_[std::size_t(id)].begin != kNone; }
    /// Empty for an id that stands for nothing.
    std::string_view string(int id) const;

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t(0);
    struct Entry {
        std::uint32_t begin = kNone, length = 0;
    };
    struct Slot {
        std::uint32_t tag = 0;
        std::int32_t id = -1;
    };
    void grow(std::size_t n_slots);

    std::string arena_;
    std::vector<Entry> entries_;
    std::vector<Slot> slots_;
    std::size_t n_used_ = 0;
};

}  // namespace llmgen

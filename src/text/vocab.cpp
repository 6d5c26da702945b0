#include "text/vocab.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace llmgen {
namespace {
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return std::uint64_t(product) ^ std::uint64_t(product >> 64);
}
std::uint64_t load64(const char* p) {
    std::uint64_t v;
    std::memcpy(&v, p, 8);
    return v;
}
std::uint32_t load32(const char* p) {
    std::uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
}  // namespace

// Multiply and fold, 16 bytes a round; short strings, which nearly all are, take one multiplication.
std::uint64_t hash_bytes(std::string_view bytes) {
    constexpr std::uint64_t k0 = 0x9E3779B97F4A7C15, k1 = 0xD6E8FEB86659FD93, k2 = 0xA0761D6478BD642F;
    const char* p = bytes.data();
    std::size_t n = bytes.size();
    std::uint64_t state = k0 ^ n, a = 0, b = 0;
    for (; n > 16; n -= 16, p += 16) state = mix(load64(p) ^ k1, load64(p + 8) ^ state);
    if (n >= 8) {
        a = load64(p);
        b = load64(p + n - 8);
    } else if (n >= 4) {
        a = load32(p);
        b = load32(p + n - 4);
    } else if (n > 0) {
        a = std::uint64_t(std::uint8_t(p[0])) << 16 | std::uint64_t(std::uint8_t(p[n / 2])) << 8 |
            std::uint8_t(p[n - 1]);
    }
    return mix(k2 ^ state, mix(a ^ k1, b ^ state));
}

void Vocab::reserve(std::size_t n_tokens, std::size_t n_bytes) {
    arena_.reserve(n_bytes);
    entries_.reserve(n_tokens);
    if (n_tokens * 2 > slots_.size()) grow(std::bit_ceil(n_tokens * 2));
}

void Vocab::grow(std::size_t n_slots) {
    std::vector<Slot> old(n_slots);
    old.swap(slots_);
    for (const Slot& s : old) {
        if (s.id < 0) continue;
        std::size_t i = hash_bytes(string(s.id)) & (slots_.size() - 1);
        while (slots_[i].id >= 0) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = s;
    }
}

void Vocab::add(std::string_view bytes, int id, bool findable) {
    CHECK(id >= 0 && id < kMaxVocabSize, "{}", id);
    if (arena_.size() + bytes.size() >= kNone) fail("the vocabulary's strings take more than 4 GiB");
    if (std::size_t(id) >= entries_.size()) entries_.resize(std::size_t(id) + 1);
    entries_[std::size_t(id)] = {std::uint32_t(arena_.size()), std::uint32_t(bytes.size())};
    arena_ += bytes;
    if (!findable) return;
    if ((n_used_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 64 : slots_.size() * 2);
    const std::uint64_t hash = hash_bytes(bytes);
    std::size_t i = hash & (slots_.size() - 1);
    for (; slots_[i].id >= 0; i = (i + 1) & (slots_.size() - 1)) {
        if (slots_[i].tag == std::uint32_t(hash >> 32) && string(slots_[i].id) == bytes) {
            slots_[i].id = id;
            return;
        }
    }
    slots_[i] = {std::uint32_t(hash >> 32), id};
    ++n_used_;
}

int Vocab::find(std::string_view bytes, std::uint64_t hash) const {
    if (slots_.empty()) return -1;
    for (std::size_t i = hash & (slots_.size() - 1); slots_[i].id >= 0; i = (i + 1) & (slots_.size() - 1))
        if (slots_[i].tag == std::uint32_t(hash >> 32) && string(slots_[i].id) == bytes) return slots_[i].id;
    return -1;
}

std::string_view Vocab::string(int id) const {
    if (!has(id)) return {};
    const Entry& e = entries_[std::size_t(id)];
    return std::string_view(arena_).substr(e.begin, e.length);
}

}  // namespace llmgen

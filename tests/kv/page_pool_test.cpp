#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace llmgen {
namespace {

std::vector<int> tokens(int n, int first = 0) {
    std::vector<int> t(static_cast<std::size_t>(n));
    std::iota(t.begin(), t.end(), first);
    return t;
}

std::string fault(const PagePool& pool, std::initializer_list<const PageTable*> tables = {}) {
    return pool.check_integrity(std::vector<const PageTable*>(tables));
}

/// A sequence that computed all of `t` and was published.
PageTable computed(PagePool& pool, const std::vector<int>& t, const std::string& salt = "") {
    PageTable table;
    table.salt = salt;
    pool.attach(table, t, 0);
    EXPECT_TRUE(pool.reserve(table, int(t.size())));
    pool.publish(table, t, int(t.size()));
    return table;
}

TEST(PagePool, HandsOutUntouchedPagesInOrderAndFreedOnesFirst) {
    PagePool pool(8, false);
    PageTable a, b;
    ASSERT_TRUE(pool.reserve(a, 33));
    EXPECT_EQ(a.pages, (std::vector{0, 1, 2}));
    pool.release(a);
    ASSERT_TRUE(pool.reserve(b, 16));
    EXPECT_EQ(b.pages, (std::vector{0}));
    EXPECT_EQ(pool.in_use(), 1);
    EXPECT_EQ(fault(pool, {&b}), "");
}

TEST(PagePool, RefusesWithoutChangingAnything) {
    PagePool pool(2, true);
    PageTable a;
    ASSERT_TRUE(pool.reserve(a, 16));
    EXPECT_FALSE(pool.reserve(a, 49));
    EXPECT_EQ(a.pages.size(), 1u);
    EXPECT_EQ(pool.available(), 1);
    EXPECT_EQ(fault(pool, {&a}), "");
}

TEST(PagePool, SharesFullPagesOfAnEqualPrefixOnly) {
    PagePool pool(16, true);
    PageTable first = computed(pool, tokens(40));
    PageTable same, longer, shifted;
    EXPECT_EQ(pool.attach(same, tokens(40), 39), 32);
    EXPECT_EQ(same.pages, (std::vector{first.pages[0], first.pages[1]}));
    EXPECT_EQ(pool.attach(longer, tokens(100), 99), 32);
    EXPECT_EQ(pool.attach(shifted, tokens(40, 1), 39), 0);
    EXPECT_EQ(fault(pool, {&first, &same, &longer, &shifted}), "");
}

TEST(PagePool, LeavesOneTokenToCompute) {
    PagePool pool(16, true);
    PageTable first = computed(pool, tokens(32));
    for (const auto& [n, want] : {std::pair{15, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}}) {
        PageTable again;
        EXPECT_EQ(pool.attach(again, tokens(n), n - 1), want) << n << " tokens";
        pool.release(again);
    }
    EXPECT_EQ(fault(pool, {&first}), "");
}

TEST(PagePool, PublishesNothingThatIsNotComputed) {
    PagePool pool(16, true);
    PageTable first, second;
    pool.attach(first, tokens(64), 63);
    ASSERT_TRUE(pool.reserve(first, 64));
    pool.publish(first, tokens(64), 31);
    EXPECT_EQ(pool.attach(second, tokens(64), 63), 16);
}

TEST(PagePool, SaltsSeparate) {
    PagePool pool(16, true);
    PageTable first = computed(pool, tokens(40), "one");
    PageTable same, other;
    same.salt = "one";
    other.salt = "two";
    EXPECT_EQ(pool.attach(same, tokens(40), 39), 32);
    EXPECT_EQ(pool.attach(other, tokens(40), 39), 0);
}

// With every hash equal, only the comparison of tokens and of the page before keeps prefixes apart.
TEST(PagePool, CollidingHashesChangeNothing) {
    PagePool pool(64, true, "", [](std::uint64_t, std::span<const int>) { return std::uint64_t(7); });
    PageTable a = computed(pool, tokens(64));
    PageTable b = computed(pool, tokens(64, 100), "other");
    PageTable c = computed(pool, tokens(64, 1000));
    PageTable again, mixed;
    EXPECT_EQ(pool.attach(again, tokens(64), 63), 48);
    EXPECT_EQ(again.pages, std::vector(a.pages.begin(), a.pages.begin() + 3));
    // The second page of one prefix behind the first page of another is no prefix.
    std::vector<int> spliced = tokens(16, 1000);
    const std::vector<int> rest = tokens(32, 16);
    spliced.insert(spliced.end(), rest.begin(), rest.end());
    EXPECT_EQ(pool.attach(mixed, spliced, 47), 16);
    EXPECT_EQ(fault(pool, {&a, &b, &c, &again, &mixed}), "");
}

TEST(PagePool, KeepsReleasedPagesUntilTheyAreNeededOldestAndLastFirst) {
    PagePool pool(6, true);
    PageTable a = computed(pool, tokens(48));
    PageTable b = computed(pool, tokens(48, 500));
    pool.release(a);
    pool.release(b);
    EXPECT_EQ(pool.cached(), 6);
    EXPECT_EQ(pool.available(), 6);
    PageTable other;
    ASSERT_TRUE(pool.reserve(other, 16));  // takes the end of a, the older one
    PageTable again_a, again_b;
    EXPECT_EQ(pool.attach(again_a, tokens(49), 48), 32);
    EXPECT_EQ(pool.attach(again_b, tokens(49, 500), 48), 48);
    EXPECT_EQ(fault(pool, {&other, &again_a, &again_b}), "");
}

TEST(PagePool, TwoThatComputedTheSameShareOneEntry) {
    PagePool pool(16, true);
    PageTable a = computed(pool, tokens(32));
    PageTable b = computed(pool, tokens(32));
    EXPECT_NE(a.pages, b.pages);
    pool.release(b);
    EXPECT_EQ(pool.cached(), 0);  // b's copies were never in the index
    PageTable c;
    EXPECT_EQ(pool.attach(c, tokens(33), 32), 32);
    EXPECT_EQ(c.pages, a.pages);
    EXPECT_EQ(fault(pool, {&a, &c}), "");
}

TEST(PagePool, OffMeansOff) {
    PagePool pool(16, false);
    PageTable a = computed(pool, tokens(40));
    PageTable b;
    EXPECT_EQ(pool.attach(b, tokens(40), 39), 0);
    pool.release(a);
    EXPECT_EQ(pool.cached(), 0);
}

TEST(PagePool, FindsPlantedFaults) {
    PagePool pool(4, true);
    PageTable a;
    ASSERT_TRUE(pool.reserve(a, 20));
    EXPECT_NE(fault(pool), "");  // a holder that isn't named
    PageTable twice = a;
    EXPECT_NE(fault(pool, {&a, &twice}), "");
    EXPECT_EQ(fault(pool, {&a}), "");
}

TEST(PagePool, RandomHistoriesStaySound) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](int n) { return int(random() % unsigned(n)); };
        PagePool pool(12 + below(40), seed % 4 != 0);
        struct Held {
            PageTable table;
            std::vector<int> tokens;
            int n_computed = 0;
        };
        std::vector<Held> held;
        for (int step = 0; step < 400; ++step) {
            const int what = below(10);
            if (what < 4) {
                Held h;
                h.table.salt = below(3) == 0 ? "salt" : "";
                for (int i = below(80) + 1, t = below(2); i > 0; --i)
                    h.tokens.push_back(t + (below(12) == 0));
                h.n_computed = pool.attach(h.table, h.tokens, int(h.tokens.size()) - 1);
                ASSERT_LT(h.n_computed, int(h.tokens.size()));
                if (pool.reserve(h.table, int(h.tokens.size())))
                    held.push_back(std::move(h));
                else
                    pool.release(h.table);
            } else if (what < 8 && !held.empty()) {
                Held& h = held[std::size_t(below(int(held.size())))];
                h.n_computed = std::min(int(h.tokens.size()), h.n_computed + below(40));
                pool.publish(h.table, h.tokens, h.n_computed);
            } else if (!held.empty()) {
                const auto at = held.begin() + below(int(held.size()));
                pool.release(at->table);
                held.erase(at);
            }
            std::vector<const PageTable*> tables;
            for (const Held& h : held) tables.push_back(&h.table);
            ASSERT_EQ(pool.check_integrity(tables), "") << "step " << step;
        }
    }
}

}  // namespace
}  // namespace llmgen

// The scheduler and the pool against a model of them: "keys and values" are hashes of the prefix up to a
// token, written to the slots that a batch names. Every row checks that what it would read from its pages is
// its own prefix, and the token it samples depends on all of it: a wrong, stale or unwritten page shows at
// once.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>

namespace llmgen {
namespace {

constexpr int kPage = kTokensPerPage;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a ^= b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2);
    a *= 0xBF58476D1CE4E5B9u;
    return a ^ (a >> 31);
}

/// The answer of a request alone, computed the plain way.
std::vector<int> alone(std::vector<int> tokens, int n_new, int vocab) {
    std::vector<int> answer;
    std::uint64_t state = 1;
    for (const int t : tokens) state = mix(state, std::uint64_t(t));
    for (int i = 0; i < n_new; ++i) {
        answer.push_back(int(state % std::uint64_t(vocab)));
        state = mix(state, std::uint64_t(answer.back()));
    }
    return answer;
}

struct World {
    World(int n_pages, bool cache, SchedulerLimits limits)
        : limits(limits),
          pool(n_pages, cache),
          scheduler(pool, limits),
          slots(std::size_t(n_pages) * kPage, 0) {}

    Sequence& add(std::vector<int> prompt,
                  int n_new,
                  int priority = 0,
                  bool all_logits = false,
                  const std::string& salt = "") {
        auto& s = sequences.emplace_back(std::make_unique<Sequence>());
        s->tokens = std::move(prompt);
        s->n_prompt = int(s->tokens.size());
        s->priority = priority;
        s->arrival = arrivals++;
        s->all_logits = all_logits;
        s->pages.salt = salt;
        wanted[s.get()] = n_new;
        scheduler.add(*s);
        return *s;
    }
    void drop(Sequence& s) {
        scheduler.remove(s);
        n_cached += std::max(s.n_cached, 0);
        done[s.arrival] = std::vector(s.tokens.begin() + s.n_prompt, s.tokens.end());
        wanted.erase(&s);
        std::erase_if(under_way, [&](const PlanRow& row) { return row.sequence == &s; });
        std::erase_if(sequences, [&](const auto& p) { return p.get() == &s; });
    }
    /// One step. False where there was nothing to do.
    bool step() {
        if (under_way.empty()) {
            const Plan& plan = scheduler.next();
            preempted += plan.n_preempted;
            compute(plan);
            under_way = plan.rows;
            scheduler.commit();
        }
        ++n_steps;
        const std::vector<PlanRow> rows = std::exchange(under_way, {});
        std::vector<int> chosen;
        for (const PlanRow& row : rows) {
            const int last = row.first + row.n_new - 1;
            const int page = row.sequence->pages.pages[std::size_t(last / kPage)];
            chosen.push_back(int(slots[std::size_t(page * kPage + last % kPage)] % kVocab));
        }
        const Plan* next = ahead ? compute_ahead(rows, chosen) : nullptr;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            Sequence& s = *rows[i].sequence;
            if (rows[i].first + rows[i].n_new != int(s.tokens.size())) continue;
            s.tokens.push_back(chosen[i]);
            if (int(s.tokens.size()) == s.n_prompt + wanted[&s]) drop(s);
        }
        if (next != nullptr && !next->rows.empty()) {
            under_way = next->rows;
            scheduler.commit();
        }
        check_integrity();
        return !rows.empty();
    }
    /// The step after `rows`, computed while only the "device" knows what they chose, as the engine does it.
    const Plan* compute_ahead(const std::vector<PlanRow>& rows, const std::vector<int>& chosen) {
        const Plan& plan = scheduler.next_ahead(rows);
        if (plan.rows.empty()) return nullptr;
        EXPECT_EQ(plan.rows.size(), rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i].sequence->tokens.push_back(chosen[i]);
        compute(plan);
        for (const PlanRow& row : rows) row.sequence->tokens.pop_back();
        ++n_ahead;
        return &plan;
    }
    void compute(const Plan& plan) {
        check_limits(plan);
        for (const PlanRow& row : plan.rows) {
            compute(row);
            n_computed += row.n_new;
        }
    }
    void compute(const PlanRow& row) {
        const Sequence& s = *row.sequence;
        ASSERT_EQ(row.first, s.n_computed);
        std::uint64_t state = 1;
        for (int p = 0; p < row.first + row.n_new; ++p) {
            state = mix(state, std::uint64_t(s.tokens[std::size_t(p)]));
            ASSERT_LT(p / kPage, int(s.pages.pages.size()));
            std::uint64_t& slot =
                slots[std::size_t(s.pages.pages[std::size_t(p / kPage)] * kPage + p % kPage)];
            if (p < row.first)
                ASSERT_EQ(slot, state) << "sequence " << s.arrival << " reads position " << p;
            else
                slot = state;
        }
    }
    void check_limits(const Plan& plan) {
        int decoding = 0, prefilling = 0, logits = 0;
        for (const PlanRow& row : plan.rows) {
            if (row.n_new == 1)
                ++decoding;
            else
                prefilling += row.n_new;
            if (row.sequence->all_logits && row.first < row.sequence->n_prompt) logits += row.n_new;
        }
        ASSERT_LE(int(plan.rows.size()), limits.max_sequences);
        ASSERT_LE(prefilling, limits.prefill_chunk);
        ASSERT_LE(decoding + prefilling, limits.max_sequences + limits.prefill_chunk);
        ASSERT_LE(logits, limits.all_logits_rows + limits.max_sequences);
    }
    void check_integrity() {
        std::vector<const PageTable*> tables;
        for (const auto& s : sequences) tables.push_back(&s->pages);
        ASSERT_EQ(pool.check_integrity(tables), "");
    }

    static constexpr int kVocab = 50;
    SchedulerLimits limits;
    PagePool pool;
    Scheduler scheduler;
    std::vector<std::uint64_t> slots;
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::map<Sequence*, int> wanted;
    std::map<std::int64_t, std::vector<int>> done;
    std::int64_t arrivals = 0;
    std::vector<PlanRow> under_way;  // computed, and committed
    bool ahead = false;
    int n_ahead = 0, preempted = 0, n_cached = 0, n_computed = 0, n_steps = 0;
};

std::vector<int> prompt_of(std::mt19937& random, int n) {
    std::vector<int> prompt;
    for (int i = 0; i < n; ++i) prompt.push_back(int(random() % 50));
    return prompt;
}

TEST(Scheduler, PrefillsInChunksWhileOthersDecode) {
    World world(64, false, {.max_sequences = 4, .prefill_chunk = 32, .mixed_chunk = 8});
    std::mt19937 random(1);
    Sequence& first = world.add(prompt_of(random, 10), 40);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(first.tokens.size(), 11u);
    Sequence& second = world.add(prompt_of(random, 50), 4);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(first.tokens.size(), 12u);  // goes on
    EXPECT_EQ(second.n_computed, 8);      // by the short chunk
    while (world.step()) {
    }
    EXPECT_EQ(world.done.size(), 2u);
}

// A full chunk holds four prompts: worth one long step, whoever decodes. One long prompt is not.
TEST(Scheduler, ManyShortPromptsAreReadInFullChunks) {
    World world(256, false, {.max_sequences = 40, .prefill_chunk = 64, .mixed_chunk = 8});
    std::mt19937 random(8);
    for (int i = 0; i < 20; ++i) world.add(prompt_of(random, 16), 40);
    for (int step = 0; step < 4; ++step) {
        ASSERT_TRUE(world.step());
        EXPECT_EQ(world.n_computed, 64 * (step + 1) + 4 * step * (step + 1) / 2);
    }
    ASSERT_TRUE(world.step());  // 16 decode, the last four prompts are a quarter of them
    EXPECT_EQ(world.sequences.back()->tokens.size(), 17u);
    Sequence& few = world.add(prompt_of(random, 64), 1);  // one answer for 20 held up
    ASSERT_TRUE(world.step());
    EXPECT_EQ(few.n_computed, 8);
    for (int i = 0; i < 3; ++i) world.add(prompt_of(random, 1), 1);  // three more behind it
    ASSERT_TRUE(world.step());
    EXPECT_EQ(few.n_computed, 16);
}

TEST(Scheduler, TheFirstOfTheWaitingIsNotOvertaken) {
    World world(8, false, {.max_sequences = 8, .prefill_chunk = 64, .mixed_chunk = 64});
    std::mt19937 random(2);
    world.add(prompt_of(random, 40), 30);  // 3 pages, 5 at the end
    ASSERT_TRUE(world.step());
    Sequence& big = world.add(prompt_of(random, 90), 2);
    Sequence& small = world.add(prompt_of(random, 4), 2);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(big.n_computed, 0);
    EXPECT_EQ(small.n_computed, 0);  // would fit, but came later
    const std::int64_t last = small.arrival;
    while (world.step()) {
    }
    EXPECT_TRUE(world.done.contains(last));
}

TEST(Scheduler, PriorityStartsFirst) {
    World world(64, false, {.max_sequences = 1, .prefill_chunk = 64, .mixed_chunk = 64});
    std::mt19937 random(3);
    Sequence& low = world.add(prompt_of(random, 8), 3, 0);
    Sequence& high = world.add(prompt_of(random, 8), 3, 5);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(low.n_computed, 0);
    EXPECT_EQ(high.n_computed, 8);
}

TEST(Scheduler, CancellingFreesPagesAtOnce) {
    World world(64, false, {.prefill_chunk = 16, .mixed_chunk = 16});
    std::mt19937 random(4);
    Sequence& running = world.add(prompt_of(random, 100), 10);
    Sequence& waiting = world.add(prompt_of(random, 2000 / 4), 10);
    ASSERT_TRUE(world.step());
    EXPECT_GT(world.pool.in_use(), 0);
    world.drop(waiting);
    world.drop(running);  // in the middle of its prefill
    EXPECT_EQ(world.pool.in_use(), 0);
    EXPECT_FALSE(world.step());
}

TEST(Scheduler, PreemptsTheLatestAndLosesNothing) {
    World world(6, false, {.max_sequences = 4, .prefill_chunk = 64, .mixed_chunk = 64});
    std::mt19937 random(5);
    std::map<std::int64_t, std::vector<int>> want;
    for (int i = 0; i < 3; ++i) {
        const std::vector<int> prompt = prompt_of(random, 20);
        want[i] = alone(prompt, 60, World::kVocab);
        world.add(prompt, 60);
    }
    while (world.step()) {
    }
    EXPECT_GT(world.preempted, 0);
    EXPECT_EQ(world.done, want);
}

// Steps whose input tokens the scheduler doesn't know yet: only where the next plan would have the same rows.
TEST(Scheduler, GoesAheadOnlyWhereNothingButTokensChanges) {
    World world(5, true, {.max_sequences = 2, .prefill_chunk = 64, .mixed_chunk = 64});
    std::mt19937 random(9);
    Sequence& first = world.add(prompt_of(random, 14), 60);
    EXPECT_TRUE(world.scheduler.next_ahead({}).rows.empty()) << "somebody waits";
    ASSERT_TRUE(world.step());
    const std::vector<PlanRow> last = {{&first, 0, 14}};
    EXPECT_TRUE(world.scheduler.next_ahead(last).rows.empty()) << "its token is known";
    world.ahead = true;
    ASSERT_TRUE(world.step());
    EXPECT_EQ(world.n_ahead, 1);
    ASSERT_EQ(world.under_way.size(), 1u);
    EXPECT_EQ(world.under_way[0].first, 15);
    EXPECT_EQ(first.pages.n_published, 1) << "the page that the step ahead fills, once its token is known";
    Sequence& second = world.add(prompt_of(random, 20), 3);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(world.n_ahead, 1) << "one has come";
    while (world.sequences.size() == 2) ASSERT_TRUE(world.step());
    (void)second;
    EXPECT_GT(world.n_ahead, 1);
    world.add(prompt_of(random, 60), 4);  // needs more pages than there are while the first one grows
    ASSERT_TRUE(world.step());
    ASSERT_TRUE(world.step());
    const int before = world.n_ahead;
    ASSERT_TRUE(world.step());
    EXPECT_GT(world.n_ahead, before) << "who waits can't come in";
    world.drop(first);
    while (world.step()) {
    }
    EXPECT_EQ(world.pool.in_use(), 0);
}

TEST(Scheduler, EqualPromptsInOneBatchAreNotReadBeforeTheyAreComputed) {
    World world(64, true, {.max_sequences = 8, .prefill_chunk = 256, .mixed_chunk = 256});
    std::mt19937 random(6);
    const std::vector<int> prompt = prompt_of(random, 48);
    for (int i = 0; i < 4; ++i) world.add(prompt, 5);
    while (world.step()) {
    }
    for (const auto& [id, answer] : world.done) EXPECT_EQ(answer, alone(prompt, 5, World::kVocab)) << id;
}

TEST(Scheduler, ASecondTurnFindsPromptAndReplyButForTheLastToken) {
    World world(64, true, {.max_sequences = 8, .prefill_chunk = 256, .mixed_chunk = 256});
    std::mt19937 random(7);
    std::vector<int> turn = prompt_of(random, 30);
    world.add(turn, 20);
    while (world.step()) {
    }
    const std::vector<int> reply = world.done[0];
    turn.insert(turn.end(), reply.begin(), reply.end());
    const std::vector<int> more = prompt_of(random, 10);
    turn.insert(turn.end(), more.begin(), more.end());
    Sequence& second = world.add(turn, 5);
    ASSERT_TRUE(world.step());
    EXPECT_EQ(second.n_cached, (30 + 20 - 1) / kPage * kPage);  // the last sampled token was never computed
}

struct History {
    unsigned seed;
    bool cache;
    int chunk;
    int n_pages;
    int cancel_percent;
    bool ahead = false;
};

class RandomHistory : public testing::TestWithParam<History> {};

TEST_P(RandomHistory, GivesEachRequestWhatItGetsAlone) {
    const History h = GetParam();
    std::mt19937 random(h.seed);
    const auto below = [&](int n) { return int(random() % unsigned(n)); };
    World world(h.n_pages, h.cache,
                {.max_sequences = 2 + below(12),
                 .prefill_chunk = h.chunk,
                 .mixed_chunk = std::max(1, h.chunk / 2),
                 .all_logits_rows = 4});
    world.ahead = h.ahead;
    std::vector<std::vector<int>> prefixes;
    for (int i = 0; i < 4; ++i) prefixes.push_back(prompt_of(random, 10 + below(50)));
    std::map<std::int64_t, std::vector<int>> want;
    std::map<std::int64_t, bool> cancelled;
    int submitted = 0;
    for (int step = 0; step < 200000; ++step) {
        if (submitted < 400 && below(3) == 0) {
            std::vector<int> prompt = prefixes[std::size_t(below(4))];
            prompt.resize(std::size_t(1 + below(int(prompt.size()))));
            for (const int t : prompt_of(random, below(30))) prompt.push_back(t);
            int n_new = 1 + below(40);
            if (below(6) == 0) {  // grows from one page to seven: what fills a small pool while it runs
                prompt.resize(std::min(prompt.size(), std::size_t(10)));
                n_new = 60 + below(40);
            }
            const Sequence& s =
                world.add(prompt, n_new, below(3), below(8) == 0, below(5) == 0 ? "salt" : "");
            want[s.arrival] = alone(prompt, n_new, World::kVocab);
            ++submitted;
        }
        if (below(100) < h.cancel_percent && !world.sequences.empty()) {
            Sequence& s = *world.sequences[std::size_t(below(int(world.sequences.size())))];
            cancelled[s.arrival] = true;
            world.drop(s);
        }
        if (below(4) == 0) world.scheduler.set_mixed_chunk(1 + below(h.chunk));
        const bool busy = world.step();
        if (testing::Test::HasFatalFailure()) return;
        if (!busy && submitted == 400) break;
    }
    ASSERT_TRUE(world.sequences.empty()) << "starved";
    ASSERT_EQ(world.done.size(), want.size());
    for (auto& [id, answer] : world.done) {
        if (cancelled[id]) want[id].resize(answer.size());  // what it got is a prefix of it
        EXPECT_EQ(answer, want[id]) << "request " << id;
    }
    EXPECT_EQ(world.pool.in_use(), 0);
    std::printf("  %d preemptions, %d tokens from the cache, %d computed in %d steps\n", world.preempted,
                world.n_cached, world.n_computed, world.n_steps);
    EXPECT_TRUE(world.preempted > 0 || h.n_pages > 10 || h.chunk == 1);
    EXPECT_EQ(world.n_cached > 0, h.cache);
    EXPECT_EQ(world.n_ahead > 0, h.ahead);
}

std::vector<History> histories() {
    std::vector<History> all;
    unsigned seed = 1;
    for (const bool ahead : {false, true})
        for (const bool cache : {false, true})
            for (const int chunk : {1, 16, 64})
                for (const int n_pages : {9, 14, 200})  // the longest request needs 8
                    for (const int cancel : {0, 10})
                        if (!ahead || chunk == 16)
                            all.push_back({seed++, cache, chunk, n_pages, cancel, ahead});
    return all;
}
INSTANTIATE_TEST_SUITE_P(All, RandomHistory, testing::ValuesIn(histories()), [](const auto& info) {
    const History& h = info.param;
    return "seed" + std::to_string(h.seed) + (h.cache ? "_cache" : "_plain") + "_chunk" +
           std::to_string(h.chunk) + "_pages" + std::to_string(h.n_pages) + "_cancel" +
           std::to_string(h.cancel_percent) + (h.ahead ? "_ahead" : "");
});

}  // namespace
}  // namespace llmgen

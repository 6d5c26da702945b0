// Loads, floors, refusals, claims and traps, with a server whose every time is given.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "app/bench/energy.h"
#include "app/bench/peak_memory.h"
#include "app/bench/study.h"
#include "app/bench/traps.h"
#include "llmgen/error.h"

namespace llmgen::bench {
namespace {

/// TTFT and TPOT of every answer; `short_by` tokens are missing.
struct Fake {
    double ttft_s = 0.1, tpot_s = 0.01, queued_s = 0;
    int short_by = 0, cached = 0;

    Result operator()(Request request, double& submit_s) const {
        submit_s = 1e-5;
        Result result;
        result.prompt_ids = std::get<TokenIds>(request.prompt);
        result.cached_tokens = cached;
        const int n = *request.max_new_tokens - short_by;
        for (int i = 0; i < n; ++i) {
            result.token_ids.push_back(7);
            result.timing.token_times_s.push_back(ttft_s + i * tpot_s);
        }
        result.timing.queued_s = queued_s;
        result.finish_reason = short_by ? FinishReason::eos : FinishReason::max_new_tokens;
        return result;
    }
};

// 1 GB of weights, 1 KB a token of context; 100 GB/s, 1 TFLOP/s.
Model model() {
    Model m;
    m.weight_bytes = 1'000'000'000;
    m.kv_bytes_per_token = 1000;
    m.prefill_flop_per_token = 1e9;
    return m;
}
Machine machine() {
    Machine m;
    m.read_bytes_per_s = 100e9;
    m.matmul_flop_per_s = 1e12;
    return m;
}

std::vector<int> some_prompt(const Point& p, int repetition, int index) {
    return random_prompt({1, 2, 3, 4, 5, 6, 7, 8, 9}, p.prompt_tokens,
                         std::uint64_t(1000 * repetition + index));
}

PointResult run(const Fake& fake, const Point& point, StudySettings settings = {}) {
    PointResult result = run_point(point, settings, fake, some_prompt, {}, {});
    judge(result, model(), machine());
    return result;
}

std::string failure_of(const Fake& fake) {
    try {
        run(fake, {.prompt_tokens = 4, .new_tokens = 16});
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(BenchStudy, FloorAndWhatWasReached) {
    const PointResult r = run({.tpot_s = 0.02}, {.prompt_tokens = 99'990, .new_tokens = 20});
    // (1 GB + 100,000 tokens × 1 KB) / 100 GB/s = 11 ms; 20 ms were needed.
    EXPECT_DOUBLE_EQ(r.step_bytes, 1.1e9);
    EXPECT_DOUBLE_EQ(r.floor_s, 0.011);
    EXPECT_NEAR(r.of_floor, 0.55, 1e-9);
    EXPECT_NEAR(r.read_bytes_per_s, 55e9, 1);
}

TEST(BenchStudy, BatchReadsWeightsOnceAndEachContext) {
    EXPECT_DOUBLE_EQ(step_bytes(model(), 32, 1000), 1e9 + 32e6);
}

TEST(BenchStudy, AFigureBeyondTheBandwidthIsRefused) {
    // The floor is 10 ms. 9 ms lie within what a measured bandwidth can be off by; 8 do not.
    EXPECT_TRUE(run({.tpot_s = 0.009}, {.prompt_tokens = 50, .new_tokens = 8}).refused.empty());
    const PointResult r = run({.tpot_s = 0.008}, {.prompt_tokens = 50, .new_tokens = 8});
    ASSERT_EQ(r.refused.size(), 1u);
    EXPECT_NE(r.refused[0].find("125 GB/s"), std::string::npos) << r.refused[0];
    EXPECT_NE(r.refused[0].find("100 GB/s"), std::string::npos) << r.refused[0];
}

TEST(BenchStudy, AFigureBeyondTheMatmulPeakIsRefused) {
    // 100 tokens × 1 GFLOP = 0.1 TFLOP: 0.1 s at the peak.
    EXPECT_TRUE(run({.ttft_s = 0.1, .tpot_s = 1}, {.prompt_tokens = 100, .new_tokens = 2}).refused.empty());
    EXPECT_EQ(run({.ttft_s = 0.05, .tpot_s = 1}, {.prompt_tokens = 100, .new_tokens = 2}).refused.size(), 1u);
    // Time in the queue is no computing: 0.05 s of 0.15 were the prefill.
    EXPECT_EQ(run({.ttft_s = 0.15, .tpot_s = 1, .queued_s = 0.1}, {.prompt_tokens = 100, .new_tokens = 2})
                  .refused.size(),
              1u);
}

TEST(BenchStudy, WeightsThatLieInTheCacheAreNoFault) {
    Machine small = machine();
    small.cache_bytes = 900'000'000;
    EXPECT_NE(implausible_decode(model(), machine(), 1, 0, 0.002), "");
    EXPECT_EQ(implausible_decode(model(), small, 1, 0, 0.002), "");
    small.cache_bytes = 100'000'000;
    EXPECT_NE(implausible_decode(model(), small, 1, 0, 0.002), "");
}

TEST(BenchStudy, ABusyMachineCanDoMoreThanWasMeasured) {
    Machine busy = machine();
    busy.busy = busy_factor(8, 2, 2);
    EXPECT_DOUBLE_EQ(busy.busy, 4);
    EXPECT_EQ(implausible_decode(model(), busy, 1, 0, 0.003), "");  // 333 GB/s of 4 × 100
    EXPECT_NE(implausible_decode(model(), busy, 1, 0, 0.002), "");  // 500
    EXPECT_DOUBLE_EQ(busy_factor(2.1, 2, 2), 1);
    EXPECT_DOUBLE_EQ(busy_factor(0, 2, 2), 1);
    EXPECT_DOUBLE_EQ(busy_factor(6, 2, 16), 1);
    EXPECT_DOUBLE_EQ(best_of(machine(), busy).busy, 4);
}

TEST(BenchStudy, UnknownLimitsRefuseNothing) {
    EXPECT_EQ(implausible_decode(model(), {}, 1, 0, 1e-9), "");
    EXPECT_EQ(implausible_prefill(model(), {}, 100, 1e-9), "");
    EXPECT_EQ(decode_floor_s(model(), {}, 1, 0), 0);
}

TEST(BenchStudy, AnAnswerThatStopsEarlyFails) {
    const std::string message = failure_of({.short_by = 3});
    EXPECT_NE(message.find("13 tokens, 16 were asked for"), std::string::npos) << message;
    EXPECT_NE(message.find("eos"), std::string::npos) << message;
}

TEST(BenchStudy, APromptFromTheCacheFails) {
    const std::string message = failure_of({.cached = 2});
    EXPECT_NE(message.find("2 of 4 prompt tokens came from the prefix cache"), std::string::npos) << message;
    StudySettings allowed;
    allowed.prefix_cache = true;
    EXPECT_EQ(
        run({.cached = 2}, {.prompt_tokens = 4, .new_tokens = 16}, allowed).metrics.pooled.cached_tokens, 10);
}

TEST(BenchStudy, TokensAreCountedByIdsNotByTextOrChunks) {
    // Seven tokens that are a space each: one run of blanks as a text, one chunk, no word.
    const Serve serve = [](Request request, double& submit_s) {
        Result result = Fake{}(std::move(request), submit_s);
        result.text = "       ";
        return result;
    };
    PointResult r = run_point({.prompt_tokens = 4, .new_tokens = 7}, {}, serve, some_prompt, {}, {});
    judge(r, model(), {});
    EXPECT_EQ(r.metrics.pooled.output_tokens, 5 * 7);
}

TEST(BenchStudy, WarmUpIsRunAndNotCounted) {
    StudySettings settings;
    settings.repetitions = 3;
    settings.warmup = 2;
    std::atomic<int> served = 0;
    const Serve serve = [&](Request request, double& submit_s) {
        ++served;
        return Fake{.ttft_s = served <= 2 ? 100.0 : 0.5}(std::move(request), submit_s);
    };
    PointResult r = run_point({.prompt_tokens = 4, .new_tokens = 2}, settings, serve, some_prompt, {}, {});
    judge(r, model(), {});
    EXPECT_EQ(served, 5);
    EXPECT_EQ(r.repetitions.size(), 3u);
    EXPECT_DOUBLE_EQ(r.metrics.pooled.ttft.max, 0.5);
    settings.warmup = 0;
    served = 10;
    r = run_point({.prompt_tokens = 4, .new_tokens = 2}, settings, serve, some_prompt, {}, {});
    EXPECT_EQ(served, 13);
}

TEST(BenchStudy, EveryPromptDiffersAndRequestsAreExact) {
    std::set<std::vector<int>> seen;
    std::mutex mutex;
    const Serve serve = [&](Request request, double& submit_s) {
        {
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(seen.insert(std::get<TokenIds>(request.prompt)).second);
            EXPECT_TRUE(request.ignore_eos);
            EXPECT_EQ(request.sampling.temperature, 0);
            EXPECT_EQ(std::get<TokenIds>(request.prompt).size(), 24u);
        }
        return Fake{}(std::move(request), submit_s);
    };
    run_point({.prompt_tokens = 24, .new_tokens = 2, .concurrency = 4, .requests = 8}, {}, serve, some_prompt,
              {}, {});
    EXPECT_EQ(seen.size(), 8u * 6u);
}

TEST(BenchLoad, ClosedLoopNeverExceedsItsClients) {
    std::atomic<int> running = 0, most = 0, served = 0;
    const Serve serve = [&](Request request, double& submit_s) {
        const int now = ++running;
        int before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        --running;
        ++served;
        return Fake{}(std::move(request), submit_s);
    };
    std::vector<Request> requests(20);
    for (Request& r : requests) {
        r.prompt = TokenIds{1};
        r.max_new_tokens = 1;
    }
    EXPECT_EQ(drive(std::move(requests), {.concurrency = 3}, serve).size(), 20u);
    EXPECT_EQ(served, 20);
    EXPECT_LE(most, 3);
}

TEST(BenchLoad, AFailureEndsTheRunAndIsThrown) {
    for (const double rate : {0.0, 1000.0}) {
        std::atomic<int> served = 0;
        const Serve serve = [&](Request request, double& submit_s) {
            if (++served == 2) throw Error("the pool is full");
            return Fake{}(std::move(request), submit_s);
        };
        std::vector<Request> requests(50);
        for (Request& r : requests) {
            r.prompt = TokenIds{1};
            r.max_new_tokens = 1;
        }
        EXPECT_THROW(drive(std::move(requests), {.concurrency = 1, .rate = rate}, serve), Error);
        if (rate == 0) {
            EXPECT_EQ(served, 2);
        }
    }
}

TEST(BenchLoad, PoissonArrivals) {
    const auto arrivals = poisson_arrivals(20'001, 4, 42);
    EXPECT_EQ(arrivals, poisson_arrivals(20'001, 4, 42));
    EXPECT_NE(arrivals, poisson_arrivals(20'001, 4, 43));
    EXPECT_EQ(arrivals.front(), 0);
    std::vector<double> gaps;
    for (std::size_t i = 1; i < arrivals.size(); ++i) gaps.push_back(arrivals[i] - arrivals[i - 1]);
    const Summary s = summarize(gaps);
    // Exponential: mean = deviation = 1 / rate, median = ln 2 / rate. Error of a mean of 20,000: 0.25 / 141.
    EXPECT_NEAR(s.mean, 0.25, 4 * 0.25 / 141);
    EXPECT_NEAR(s.stdev, 0.25, 0.01);
    EXPECT_NEAR(s.median, 0.1733, 0.008);
    EXPECT_GE(s.min, 0);
}

TEST(BenchLoad, ArrivalsDoNotWaitForAnswers) {
    // Nobody is answered before all have arrived, so a loop that waits for answers would end in the time
    // limit.
    std::mutex mutex;
    std::condition_variable all_there;
    int arrived = 0, waited_in_vain = 0;
    const Serve slow = [&](Request request, double& submit_s) {
        std::unique_lock lock(mutex);
        ++arrived;
        all_there.notify_all();
        waited_in_vain += !all_there.wait_for(lock, std::chrono::seconds(20), [&] { return arrived == 5; });
        return Fake{.ttft_s = 0.06}(std::move(request), submit_s);
    };
    std::vector<Request> requests(5);
    for (Request& r : requests) {
        r.prompt = TokenIds{1};
        r.max_new_tokens = 1;
    }
    const auto records = drive(std::move(requests), {.rate = 1000, .seed = 3}, slow);
    EXPECT_EQ(records.size(), 5u);
    EXPECT_EQ(waited_in_vain, 0);
}

TEST(BenchSweep, ClaimsHoldAndFail) {
    const auto result = [](int prompt, double ttft, double tpot) {
        return run({.ttft_s = ttft, .tpot_s = tpot}, {.prompt_tokens = prompt, .new_tokens = 50});
    };
    auto claims = sweep_claims({result(13, 0.02, 0.02), result(130, 0.15, 0.0202), result(2000, 2.5, 0.021)});
    ASSERT_EQ(claims.size(), 2u);
    EXPECT_TRUE(claims[0].holds) << claims[0].text;
    EXPECT_TRUE(claims[1].holds) << claims[1].text;
    claims = sweep_claims({result(13, 2.5, 0.02), result(130, 2.5, 0.02), result(2000, 2.5, 0.02)});
    ASSERT_EQ(claims.size(), 2u);
    EXPECT_FALSE(claims[0].holds) << "a flat TTFT was taken for a rise";
    claims = sweep_claims({result(13, 0.02, 0.02), result(130, 0.15, 0.1), result(2000, 2.5, 0.5)});
    ASSERT_EQ(claims.size(), 2u);
    EXPECT_FALSE(claims[1].holds) << "a TPOT that grows 25 times was taken for flat";
    // Nothing follows from a refused figure.
    PointResult refused = result(2000, 2.5, 0.001);
    ASSERT_FALSE(refused.refused.empty());
    EXPECT_EQ(sweep_claims({result(13, 0.02, 0.02), refused}).size(), 0u);
    claims = sweep_claims({result(13, 0.02, 0.02), result(130, 0.15, 0.02), refused});
    ASSERT_EQ(claims.size(), 2u);
    EXPECT_NE(claims[0].text.find("to 130 "), std::string::npos) << claims[0].text;
}

TEST(BenchTraps, WrongFiguresAreShownAsWrong) {
    const PointResult r = run({.ttft_s = 0.5, .tpot_s = 0.02}, {.prompt_tokens = 512, .new_tokens = 26});
    const auto rows = trap_rows(r, model(), machine());
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_TRUE(rows[0].right);
    EXPECT_NEAR(rows[0].tokens_per_s, 50, 1e-6);
    EXPECT_FALSE(rows[1].right);
    EXPECT_NEAR(rows[1].tokens_per_s, 538, 1e-6);  // (512 + 26) / 1 s
    EXPECT_FALSE(rows[2].right);
    EXPECT_NEAR(rows[2].tokens_per_s, 2.6e6, 1);  // 26 tokens / 10 µs
    EXPECT_NE(rows[2].verdict.find("impossible"), std::string::npos) << rows[2].verdict;
    EXPECT_EQ(rows[0].verdict.find("impossible"), std::string::npos) << rows[0].verdict;
    const std::string table = trap_table(rows);
    EXPECT_NE(table.find("RIGHT"), std::string::npos);
    EXPECT_NE(table.find("WRONG"), std::string::npos);
}

TEST(BenchPlan, Lists) {
    EXPECT_EQ(parse_list("--x", "128,512"), (std::vector<int>{128, 512}));
    EXPECT_EQ(parse_list("--x", "1..32"), (std::vector<int>{1, 2, 4, 8, 16, 32}));
    EXPECT_EQ(parse_list("--x", "3..10,64"), (std::vector<int>{3, 6, 10, 64}));
    EXPECT_EQ(parse_list("--x", "5..5"), (std::vector<int>{5}));
    for (const char* bad :
         {"", ",", "1,", "0", "-3", "a", "1..", "..4", "8..2", "1.5", "1...4", "99999999999"})
        EXPECT_THROW(parse_list("--x", bad), UsageError) << bad;
    EXPECT_EQ(parse_rates("--rate", "0.5,2"), (std::vector<double>{0.5, 2}));
    for (const char* bad : {"0", "-1", "nan", "inf", "1,,2"})
        EXPECT_THROW(parse_rates("--rate", bad), UsageError) << bad;
}

TEST(BenchPlan, Grid) {
    const auto points = grid_points({{128, 512}, {16}, {1, 4}, {2.5}, 0});
    ASSERT_EQ(points.size(), 6u);
    EXPECT_EQ(points[0], (Point{.prompt_tokens = 128, .new_tokens = 16, .concurrency = 1, .requests = 1}));
    EXPECT_EQ(points[1], (Point{.prompt_tokens = 128, .new_tokens = 16, .concurrency = 4, .requests = 4}));
    EXPECT_EQ(points[2], (Point{.prompt_tokens = 128, .new_tokens = 16, .rate = 2.5, .requests = 16}));
    EXPECT_EQ(points[3].prompt_tokens, 512);
    EXPECT_EQ(grid_points({{1}, {1}, {8}, {}, 40})[0].requests, 40);
}

TEST(BenchPlan, ReportLoadsFitTheContext) {
    for (const int context : {96, 256, 2048, 8192})
        for (const Point& p : report_points(context)) EXPECT_LE(p.prompt_tokens + p.new_tokens, context);
    EXPECT_THROW(report_points(64), Error);
}

TEST(BenchPlan, PromptsAreOrdinaryAndRepeatable) {
    EngineInfo info;
    info.vocab_size = 10;
    info.eos_token_ids = {2, 9};
    const auto ordinary = ordinary_ids(info, nullptr);
    EXPECT_EQ(ordinary, (std::vector<int>{0, 1, 3, 4, 5, 6, 7, 8}));
    const auto prompt = random_prompt(ordinary, 500, 5);
    EXPECT_EQ(prompt, random_prompt(ordinary, 500, 5));
    EXPECT_NE(prompt, random_prompt(ordinary, 500, 6));
    EXPECT_EQ(std::set<int>(prompt.begin(), prompt.end()).size(), 8u);
    EXPECT_NE(sweep_text(10, 1), sweep_text(10, 2));
    const std::string text = sweep_text(1500, 1);
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 1499);
}

TEST(BenchMachine, LimitsFromJson) {
    const std::string json = R"({"version": "1", "devices": [
        {"name": "cpu", "description": "a CPU", "read_bandwidth_bytes_per_s": 8e10,
         "matmul_bf16_flop_per_s": 5e11, "matmul_f32_flop_per_s": 2e11, "cache_bytes": 33554432},
        {"name": "cuda:0", "problem": "no driver", "read_bandwidth_bytes_per_s": null}, 7]})";
    EXPECT_EQ(machine_from_json(json, "cpu", "bf16").read_bytes_per_s, 8e10);
    EXPECT_EQ(machine_from_json(json, "cpu", "bf16").matmul_flop_per_s, 5e11);
    EXPECT_EQ(machine_from_json(json, "cpu", "f32").matmul_flop_per_s, 2e11);
    EXPECT_EQ(machine_from_json(json, "cpu", "f32").cache_bytes, 32u << 20);
    EXPECT_EQ(machine_from_json(json, "cpu", "f32").description, "a CPU");
    EXPECT_EQ(machine_from_json(json, "cuda:0", "bf16").read_bytes_per_s, 0);
    for (const char* bad : {"[]", "no json", "{}", R"({"devices": 3})", R"({"devices": [{"name": 1}]})"})
        EXPECT_EQ(machine_from_json(bad, "cpu", "bf16").read_bytes_per_s, 0) << bad;
}

TEST(BenchMachine, TheBestMeasurementCounts) {
    Machine low = machine();
    low.read_bytes_per_s = 10e9;
    EXPECT_EQ(best_of(low, machine()).read_bytes_per_s, 100e9);
    EXPECT_EQ(best_of(machine(), low).read_bytes_per_s, 100e9);
    // Refused under the low measurement, and no longer under the better one.
    PointResult r = run({.tpot_s = 0.02}, {.prompt_tokens = 50, .new_tokens = 8});
    judge(r, model(), low);
    EXPECT_EQ(r.refused.size(), 1u);
    judge(r, model(), best_of(low, machine()));
    EXPECT_TRUE(r.refused.empty());
}

TEST(BenchMachine, TheFloorIsByTheLimitsAroundTheLoad) {
    // 20 ms at a pace of 60 GB/s, on a machine that has been seen to reach 100: 16.7 ms were the least.
    PointResult r = run({.tpot_s = 0.02}, {.prompt_tokens = 50, .new_tokens = 8});
    r.before.read_bytes_per_s = 55e9;
    r.after.read_bytes_per_s = 60e9;
    judge(r, model(), machine());
    EXPECT_NEAR(r.floor_s, 1 / 60.0, 1e-4);
    EXPECT_NEAR(r.of_floor, 1 / 1.2, 1e-3);
    EXPECT_EQ(r.limits.read_bytes_per_s, 60e9);
    EXPECT_EQ(r.limits.matmul_flop_per_s, 1e12) << "not measured around the load: the study's counts";
    EXPECT_EQ(unsteady(r), "") << "a tenth is noise";
    // Both paces met: the percentage is by the better one, and it is said.
    r.before.read_bytes_per_s = 90e9;
    judge(r, model(), machine());
    EXPECT_NEAR(r.floor_s, 1 / 90.0, 1e-4);
    EXPECT_NE(unsteady(r).find("from 90 to 60 GB/s read;"), std::string::npos) << unsteady(r);
    // The good pace was in between: a figure isn't shown as better than the floor, and only the best refuses.
    r.before.read_bytes_per_s = r.after.read_bytes_per_s = 40e9;
    judge(r, model(), machine());
    EXPECT_EQ(r.limits.read_bytes_per_s, 100e9);
    EXPECT_NEAR(r.of_floor, 0.5, 1e-3);
    EXPECT_TRUE(r.refused.empty());
}

TEST(BenchMachine, ThePromptsPeakIsThatAroundTheLoad) {
    PointResult r = run({.ttft_s = 0.25, .tpot_s = 1}, {.prompt_tokens = 100, .new_tokens = 2});
    r.before.matmul_flop_per_s = r.after.matmul_flop_per_s = 0.5e12;
    judge(r, model(), machine());
    EXPECT_NEAR(r.of_matmul_peak, 0.8, 1e-9);  // 0.4 TFLOP/s
    r.before.matmul_flop_per_s = r.after.matmul_flop_per_s = 0.3e12;
    judge(r, model(), machine());
    EXPECT_NEAR(r.of_matmul_peak, 0.4, 1e-9);
    r.after.matmul_flop_per_s = 0.4e12;
    EXPECT_NE(unsteady(r), "");
}

TEST(BenchMemory, WhatMeasuringTookIsNotCounted) {
    PeakMemory memory;
    memory.pause();
    const double before = memory.bytes();
    // Mapped, not allocated: a sanitizer keeps what was freed.
    constexpr std::size_t kBytes = std::size_t(256) << 20;
    void* loop = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(loop, MAP_FAILED);
    std::memset(loop, 1, kBytes);
    EXPECT_GT(memory.bytes(), before + (200 << 20));
    munmap(loop, kBytes);
    memory.resume();
    if (memory.bytes() == 0) GTEST_SKIP() << "this system doesn't forget a peak";
    EXPECT_LT(memory.bytes(), before + (64 << 20));
}

TEST(BenchMemory, APeakThatIsNotForgottenIsUnknown) {
    namespace fs = std::filesystem;
    const fs::path proc = fs::path(testing::TempDir()) / "llmgen_proc";
    fs::create_directories(proc);
    std::ofstream(proc / "status") << "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
    PeakMemory memory(proc.string());
    EXPECT_EQ(memory.bytes(), 2048 * 1024.0);
    memory.pause();
    fs::create_directories(proc / "clear_refs");  // no file that could be written
    memory.resume();
    EXPECT_EQ(memory.bytes(), 0);
    EXPECT_EQ(PeakMemory("/nowhere").bytes(), 0);
}

TEST(BenchEnergy, RaplCountsPackagesAndWraps) {
    namespace fs = std::filesystem;
    const fs::path root = fs::path(testing::TempDir()) / "llmgen_rapl";
    const auto write = [&](const std::string& file, const std::string& text) {
        fs::create_directories((root / file).parent_path());
        std::ofstream(root / file) << text;
    };
    fs::remove_all(root);
    EXPECT_FALSE(rapl_counter(root.string()));
    write("intel-rapl:0/energy_uj", "9000000");
    write("intel-rapl:0/max_energy_range_uj", "10000000");
    write("intel-rapl:1/energy_uj", "0");
    const auto joules = rapl_counter(root.string());
    ASSERT_TRUE(joules);
    EXPECT_DOUBLE_EQ(*joules(), 0);
    write("intel-rapl:0/energy_uj", "500000");  // over the top: 1 + 0.5 J
    write("intel-rapl:1/energy_uj", "2000000");
    EXPECT_DOUBLE_EQ(*joules(), 3.5);
    fs::remove(root / "intel-rapl:1/energy_uj");
    EXPECT_FALSE(joules().has_value());
    fs::remove_all(root);
}

TEST(BenchEnergy, JoulesPerNewToken) {
    double counter = 0;
    const auto energy = [&]() -> std::optional<double> { return counter += 10; };  // 10 J a repetition
    StudySettings settings;
    settings.repetitions = 4;
    const PointResult r = run_point({.prompt_tokens = 4, .new_tokens = 5, .requests = 2}, settings, Fake{},
                                    some_prompt, energy, {});
    EXPECT_DOUBLE_EQ(r.joules_per_token, 1);  // 40 J, 4 × 2 × 5 tokens
}

}  // namespace
}  // namespace llmgen::bench

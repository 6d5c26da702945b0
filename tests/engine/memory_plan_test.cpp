#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace llmgen {
namespace {

using testing::HasSubstr;

constexpr std::size_t kGiB = std::size_t(1) << 30;

// Llama 3.1 8B in bf16: 16 GiB of weights, 128 KiB a token.
MemoryNeeds llama8b(std::size_t free, bool host) {
    return {.free_bytes = free,
            .weight_bytes = 15 * kGiB,
            .bytes_per_token = 131072,
            .model_context = 131072,
            .host = host};
}

std::string message(const MemoryNeeds& needs, const EngineOptions& options) {
    try {
        plan_memory(needs, options);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(MemoryPlan, BytesPerToken) {
    ModelConfig config;
    config.n_layers = 32;
    config.n_kv_heads = 8;
    config.head_dim = 128;
    EXPECT_EQ(kv_bytes_per_token(config, Compute::bf16), 131072u);
    EXPECT_EQ(kv_bytes_per_token(config, Compute::f32), 262144u);
}

TEST(MemoryPlan, TheModelsContextWhereItFits) {
    const MemoryPlan plan = plan_memory(llama8b(80 * kGiB, false), {});
    EXPECT_EQ(plan.max_context, 131072);
    EXPECT_GE(plan.n_pages * kPageSize, 131072);
    EXPECT_EQ(plan.note, "");
}

TEST(MemoryPlan, LessContextWithANoteWhereNothingWasAsked) {
    const MemoryPlan plan = plan_memory(llama8b(20 * kGiB, true), {});
    EXPECT_LT(plan.max_context, 131072);
    EXPECT_GT(plan.max_context, 0);
    EXPECT_EQ(plan.max_context % kPageSize, 0);
    EXPECT_THAT(plan.note, HasSubstr("131072"));
}

TEST(MemoryPlan, MoreThanFitsIsAnErrorWithNumbersAndFlags) {
    EngineOptions options;
    options.max_context = 100000;
    const std::string text = message(llama8b(20 * kGiB, false), options);
    EXPECT_THAT(text, HasSubstr("100000 tokens needs 12.2 GiB"));
    EXPECT_THAT(text, HasSubstr("--max-context"));
    EXPECT_THAT(text, HasSubstr("--kv-memory"));
    // The length that it names fits.
    const std::size_t at = text.find("--max-context ");
    options.max_context = std::stoi(text.substr(at + 14));
    EXPECT_EQ(message(llama8b(20 * kGiB, false), options), "accepted");
    ++options.max_context;
    EXPECT_NE(message(llama8b(20 * kGiB, false), options), "accepted");
}

TEST(MemoryPlan, BeyondTheModel) {
    EngineOptions options;
    options.max_context = 131073;
    EXPECT_THAT(message(llama8b(80 * kGiB, false), options), HasSubstr("131072 positions"));
}

TEST(MemoryPlan, KvMemoryIsTheBudget) {
    EngineOptions options;
    options.kv_memory = kGiB;
    EXPECT_EQ(plan_memory(llama8b(80 * kGiB, false), options).n_pages, 512);
    EXPECT_EQ(plan_memory(llama8b(80 * kGiB, false), options).max_context, 8192);
    options.kv_memory = 70 * kGiB;
    EXPECT_THAT(message(llama8b(80 * kGiB, false), options), HasSubstr("--kv-memory 70.0 GiB"));
    options.kv_memory = 1000;
    EXPECT_NE(message(llama8b(80 * kGiB, false), options), "accepted");
}

TEST(MemoryPlan, StepsOfManySequencesTakeFromThePagesAndAreNamedWhereTheyLeaveNone) {
    MemoryNeeds needs = llama8b(24 * kGiB, false);
    EngineOptions options;
    options.max_sequences = 4096;
    const int before = plan_memory(needs, options).n_pages;
    needs.step_bytes = 4 * kGiB;
    EXPECT_NEAR(plan_memory(needs, options).n_pages, before - 0.9 * 4 * 8192 / 16, 1);
    needs.step_bytes = 12 * kGiB;
    const std::string why = "12.0 GiB for steps of 4096 sequences and 512 tokens: fewer at once";
    EXPECT_THAT(message(needs, options), HasSubstr(why));
    options.kv_memory = kGiB;
    EXPECT_THAT(message(needs, options), HasSubstr(why));
}

TEST(MemoryPlan, NoRoomAtAll) {
    const std::string text = message(llama8b(10 * kGiB, true), {});
    EXPECT_THAT(text, HasSubstr("hold 0 tokens"));
    EXPECT_THAT(text, testing::Not(HasSubstr("--max-context")));  // none would fit
}

TEST(MemoryPlan, WhatMayStillBeMappedIsTheBound) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    MemoryNeeds needs = llama8b(2000000 * kGiB, true);
    if (before.rlim_cur == RLIM_INFINITY) {
        bound_by_address_space(needs);
        EXPECT_EQ(needs.free_bytes, 2000000 * kGiB);
    }
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{pages * std::size_t(::getpagesize()) + 12 * kGiB, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    bound_by_address_space(needs);
    ::setrlimit(RLIMIT_AS, &before);
    EXPECT_LE(needs.free_bytes, 12 * kGiB);
    EXPECT_GT(needs.free_bytes, 11 * kGiB);
    EXPECT_THAT(message(needs, {}), HasSubstr("free by ulimit -v"));
}

}  // namespace
}  // namespace llmgen

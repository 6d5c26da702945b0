// How many prompt tokens join a step in which others decode.
#include "engine/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace llmgen {
namespace {

TEST(Pace, KeepsAMixedStepBelowItsLimit) {
    for (const double token_s : {0.0001, 0.0003, 0.001}) {
        Pace pace(3, 512);
        pace.add(1, 0, 0.005);
        for (int step = 0; step < 60; ++step) {
            const int n = pace.chunk();
            EXPECT_EQ(n % Pace::kSmallest, 0);
            pace.add(1, n, 0.005 + n * token_s);
        }
        const int wanted = int(2 * 0.005 / token_s);
        EXPECT_LE(pace.chunk(), std::max(wanted + 1, Pace::kSmallest));
        EXPECT_GE(pace.chunk(), std::min(wanted - Pace::kSmallest, 512));
    }
}

TEST(Pace, FollowsACostThatGrowsAndForgetsOneHiccup) {
    Pace pace(3, 512);
    for (int step = 0; step < 10; ++step) pace.add(1, 0, 0.004);
    for (int step = 0; step < 50; ++step) pace.add(1, pace.chunk(), 0.004 + pace.chunk() * 0.0001);
    const int before = pace.chunk();
    EXPECT_NEAR(before, 80, 4);
    pace.add(1, before, 3.0);  // the machine did something else
    EXPECT_GE(pace.chunk(), 48);
    for (int step = 0; step < 50; ++step) pace.add(1, pace.chunk(), 0.004 + pace.chunk() * 0.0002);
    EXPECT_NEAR(pace.chunk(), 38, 2);
}

TEST(Pace, ItsBounds) {
    EXPECT_EQ(Pace(0, 512).chunk(), 512);  // no limit
    EXPECT_EQ(Pace(3, 512).chunk(), 32);   // nothing known yet
    EXPECT_EQ(Pace(3, 3).chunk(), 3);      // as a caller wants it
    Pace slow(1, 512), fast(1000, 512);
    for (Pace* pace : {&slow, &fast}) {
        pace->add(1, 0, 0.01);
        pace->add(1, 32, 0.02);
    }
    EXPECT_EQ(slow.chunk(), Pace::kSmallest);  // prompts move on all the same
    EXPECT_EQ(fast.chunk(), 512);
}

}  // namespace
}  // namespace llmgen

// How many lines pass.

#include "log/line-limit.h"

#include <gtest/gtest.h>

namespace dgr {

using std::chrono::milliseconds;

TEST(LineLimit, LetsABurstThroughThenOneAnIntervalAndCountsTheRest) {
    LineLimit limit(3, milliseconds(100));
    const LineLimit::Instant start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(limit.take(start), 0u);
    }
    EXPECT_EQ(limit.take(start), std::nullopt);
    EXPECT_EQ(limit.take(start + milliseconds(99)), std::nullopt);
    EXPECT_EQ(limit.take(start + milliseconds(100)), 2u);
    EXPECT_EQ(limit.take(start + milliseconds(101)), std::nullopt);
    EXPECT_EQ(limit.take(start + milliseconds(200)), 1u);
}

TEST(LineLimit, SavesUpNoMoreThanABurst) {
    LineLimit limit(2, milliseconds(10));
    const LineLimit::Instant start = std::chrono::steady_clock::now();
    EXPECT_EQ(limit.take(start), 0u);
    const LineLimit::Instant later = start + std::chrono::hours(1);
    EXPECT_EQ(limit.take(later), 0u);
    EXPECT_EQ(limit.take(later), 0u);
    EXPECT_EQ(limit.take(later), std::nullopt);
}

}  // namespace dgr

// Which frames share a call: neighbours of equal rows, and nobody waits for ever.

#include "session/joining.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace dgr {

using Slots = std::vector<uint32_t>;

static Slots chosen(const std::vector<WaitingFrame> & waiting, const std::vector<SlotClass> & classes, uint32_t max_rows) {
    Slots slots;
    for (const size_t i : choose_joined(waiting, classes, max_rows)) {
        slots.push_back(waiting.at(i).slot);
    }
    return slots;
}

TEST(Joining, AFrameAloneGoesAlone) {
    EXPECT_EQ(chosen({{3, 1}}, {{8, 64}}, 64), (Slots{3}));
}

TEST(Joining, NeighboursWithoutAGapGoTogetherInSlotOrder) {
    EXPECT_EQ(chosen({{2, 1}, {4, 1}, {1, 1}, {3, 1}, {6, 1}}, {{8, 64}}, 64), (Slots{1, 2, 3, 4}));
}

TEST(Joining, UnequalRowsDoNotJoinAndBreakARow) {
    EXPECT_EQ(chosen({{0, 1}, {1, 16}, {2, 1}}, {{8, 64}}, 64), (Slots{0}));
    EXPECT_EQ(chosen({{1, 16}, {0, 1}, {2, 16}}, {{8, 64}}, 64), (Slots{1, 2}));
}

TEST(Joining, ACallHoldsAtMostTheRowsOfAnUbatchLowSlotsFirst) {
    EXPECT_EQ(chosen({{2, 16}, {0, 16}, {1, 16}, {3, 16}}, {{8, 64}}, 48), (Slots{0, 1, 2}));
    EXPECT_EQ(chosen({{2, 33}, {0, 33}, {1, 33}}, {{8, 64}}, 64), (Slots{2}));
}

TEST(Joining, ClassesDoNotMix) {
    EXPECT_EQ(chosen({{1, 1}, {0, 1}, {2, 1}}, {{2, 64}, {2, 128}}, 64), (Slots{0, 1}));
    EXPECT_EQ(chosen({{2, 1}, {1, 1}, {3, 1}}, {{2, 64}, {2, 128}}, 64), (Slots{2, 3}));
}

// Whatever waits: the oldest is in, the rows fit, slots are consecutive and of one class, rows are equal.
TEST(Joining, HoldsItsPromisesOnRandomCrowds) {
    std::mt19937 random(11);
    const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    for (int round = 0; round < 2000; ++round) {
        const std::vector<SlotClass> classes  = {{below(4) + 1, 64}, {below(6) + 1, 128}};
        const uint32_t               n_slots  = classes[0].slots + classes[1].slots;
        const uint32_t               max_rows = 4 + below(20);
        std::set<uint32_t>           taken;
        std::vector<WaitingFrame>    waiting;
        for (uint32_t i = 0; i <= below(n_slots); ++i) {
            const uint32_t slot = below(n_slots);
            if (taken.insert(slot).second) {
                waiting.push_back({slot, 1 + below(3)});
            }
        }
        const std::vector<size_t> joined = choose_joined(waiting, classes, max_rows);
        ASSERT_NE(std::find(joined.begin(), joined.end(), 0), joined.end());
        ASSERT_LE(joined.size() * waiting[0].rows, max_rows);
        for (size_t i = 0; i < joined.size(); ++i) {
            ASSERT_EQ(waiting[joined[i]].rows, waiting[0].rows);
            ASSERT_EQ(waiting[joined[i]].slot, waiting[joined[0]].slot + i);
            ASSERT_EQ(waiting[joined[i]].slot < classes[0].slots, waiting[0].slot < classes[0].slots);
        }
    }
}

}  // namespace dgr

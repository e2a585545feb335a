// Tokens over stages and streams are those of one whole engine.

#include "rpc/route.h"

#include <gtest/gtest.h>

#include <thread>

namespace dgr {

static const std::vector<std::vector<int32_t>> PROMPT = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}};

class Chain : public ::testing::TestWithParam<std::tuple<std::vector<uint32_t>, Mode>> {
protected:
    Route route{std::get<0>(GetParam()), {}, in_mode(std::get<1>(GetParam()))};
};

TEST_P(Chain, GivesWhatAWholeEngineGives) {
    for (const bool chained : {false, true}) {
        Conversation conversation(route, chained ? "chained" : "direct", 1, chained);
        ASSERT_TRUE(conversation.open().ok());
        std::unique_ptr<ResultsCall> results;
        if (!chained) {
            results = std::make_unique<ResultsCall>(conversation);
            ASSERT_TRUE(results->ready());
        }
        ExecuteCall execute(conversation);
        EXPECT_EQ(converse(conversation, execute, results.get(), PROMPT, 6), expected(FakeSettings(), PROMPT, 6));
        execute.send_all_done();
        EXPECT_TRUE(execute.end().ok());
    }
}

TEST_P(Chain, FramesSentAheadOfTheirAnswersKeepTheirOrder) {
    route.tail().knobs->delay_ms = 3;
    const std::vector<std::vector<int32_t>> prompt(16, {1, 2, 3, 4});
    Conversation conversation(route, "ahead");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    EXPECT_EQ(converse(conversation, execute, &results, prompt, 0), expected(FakeSettings(), prompt, 0));
}

TEST_P(Chain, InterleavedSessionsDoNotTouchEachOther) {
    FakeSettings settings;
    Conversation one(route, "one"), two(route, "two");
    ASSERT_TRUE(one.open().ok());
    ASSERT_TRUE(two.open().ok());
    ResultsCall results_one(one), results_two(two);
    ExecuteCall execute_one(one), execute_two(two);
    const std::vector<std::vector<int32_t>> other = {{7, 7}, {7, 8, 9}};
    Transcript got_one, got_two;
    std::thread second([&] { got_two = converse(two, execute_two, &results_two, other, 10); });
    got_one = converse(one, execute_one, &results_one, PROMPT, 10);
    second.join();
    EXPECT_EQ(got_one, expected(settings, PROMPT, 10));
    EXPECT_EQ(got_two, expected(settings, other, 10));
}

using Cuts = std::vector<uint32_t>;
INSTANTIATE_TEST_SUITE_P(Cuts, Chain, ::testing::Combine(
    ::testing::Values(Cuts{0, 4}, Cuts{0, 1, 4}, Cuts{0, 1, 3, 4}), ::testing::Values(Mode::exact, Mode::throughput)));

TEST(Chain, AHalfClosedStreamEndsOkOnEveryStage) {
    Route route({0, 1, 3, 4});
    Conversation conversation(route, "half");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    for (int i = 0; i < 4; ++i) {
        execute.send(conversation.next({1, 2}));
    }
    execute.send_all_done();
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(execute.executed(), i);
        ASSERT_TRUE(results.next().has_value());
    }
    EXPECT_TRUE(execute.end().ok());

    EXPECT_TRUE(results.end().ok());

    ExecuteCall again(conversation);  // the session is still there
    again.send(conversation.next({3}));
    EXPECT_EQ(again.executed(), 4);
    ResultsCall rest(conversation, 4);
    EXPECT_TRUE(rest.next().has_value());
}

}  // namespace dgr

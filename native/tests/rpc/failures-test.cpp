// Neighbours that die, clients that leave, engines that fail, time that runs out.

#include "rpc/route.h"

#include <gtest/gtest.h>

#include <thread>

namespace dgr {

using std::chrono::milliseconds;

TEST(Failures, ADeadSuccessorIsNamedAndTheSlotIsFree) {
    Route route({0, 1, 3, 4});
    Conversation conversation(route, "dead");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2}));
    ASSERT_TRUE(results.next());
    ASSERT_EQ(execute.executed(), 0);
    route.workers[1].reset();
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    const auto failure = detail_of<wire::Failure>(status);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->range().first(), 1u);
    EXPECT_EQ(failure->range().last(), 3u);
    EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(route.head().status().slots_free(), 2u);
    EXPECT_EQ(ExecuteCall(conversation).end().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(Failures, ASuccessorThatIsGoneBeforeTheFirstFrameIsNamed) {
    Route route({0, 2, 4});
    Conversation conversation(route, "gone");
    ASSERT_TRUE(conversation.open().ok());
    route.workers[1].reset();
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    ASSERT_TRUE(detail_of<wire::Failure>(status));
    EXPECT_EQ(detail_of<wire::Failure>(status)->range().first(), 2u);
    EXPECT_EQ(route.head().status().slots_free(), 2u);
}

TEST(Failures, AnEngineFailureReachesTheClientUnchanged) {
    for (const size_t failing : {0, 1, 2}) {
        Route route({0, 1, 3, 4});
        Conversation conversation(route, "engine");
        ASSERT_TRUE(conversation.open().ok());
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        execute.send(conversation.next({1, 2}));
        ASSERT_TRUE(results.next());
        route.workers[failing]->knobs->fail = true;
        execute.send(conversation.next({3}));
        const grpc::Status status = execute.end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
        const auto failure = detail_of<wire::Failure>(status);
        ASSERT_TRUE(failure) << status.error_message();
        EXPECT_EQ(failure->stage(), route.workers[failing]->about.instance());
        EXPECT_EQ(failure->range().first(), route.workers[failing]->about.range().first());
        EXPECT_EQ(failure->epoch(), 1u);
        EXPECT_EQ(failure->sequence(), 1u);
        EXPECT_EQ(failure->cause(), "made to fail");
        EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
        // the same session goes on under a new epoch
        route.workers[failing]->knobs->fail = false;
        Conversation next(route, "engine", 2);
        ASSERT_TRUE(next.open().ok());
        ResultsCall next_results(next);
        ExecuteCall next_execute(next);
        EXPECT_EQ(converse(next, next_execute, &next_results, {{5}}, 2), expected(FakeSettings(), {{5}}, 2));
        for (const auto & worker : route.workers) {
            EXPECT_EQ(worker->status().slots_free(), 1u);
        }
    }
}

// The results of these frames. A stream of frames that was given up may take Results along, once each; they are
// attached again.
static std::vector<wire::Result> collect(const Conversation & conversation, uint64_t from, uint64_t to) {
    std::vector<wire::Result> collected;
    for (int attempt = 0; attempt < 10 && from < to; ++attempt) {
        ResultsCall results(conversation, from);
        for (auto result = results.next(); result; result = results.next()) {
            if (result->sequence() == from) {  // one that a stage had to send again comes twice
                collected.push_back(*result);
                ++from;
            }
            if (from == to) {
                break;
            }
        }
    }
    return collected;
}

TEST(Failures, ACancelledClientContinuesOnANewStream) {
    Route route({0, 1, 3, 4});
    Conversation conversation(route, "cancel");
    ASSERT_TRUE(conversation.open().ok());
    std::vector<int32_t> tokens;
    std::vector<std::vector<int32_t>> prompt;
    for (int turn = 0; turn < 20; ++turn) {
        prompt.push_back({turn % 7, turn % 5});
        const uint64_t sequence = conversation.sequence;
        ExecuteCall execute(conversation);
        execute.send(conversation.next(prompt.back(), wire::LOGITS_ALL));
        const auto results = collect(conversation, sequence, sequence + 1);
        ASSERT_EQ(results.size(), 1u) << turn;
        tokens.push_back(results[0].token());
        execute.cancel();
    }
    EXPECT_EQ(tokens, expected(FakeSettings(), prompt, 0).tokens);
}

// Executed gives credit back: the client need not hold a frame that the head has executed, even if the stream is
// lost before the frame went further.
TEST(Failures, AnExecutedFrameReachesTheTailThoughItsStreamIsLost) {
    Route route({0, 1, 3, 4});
    route.workers[1]->knobs->delay_ms = 5;
    for (uint64_t epoch = 1; epoch < 20; ++epoch) {
        Conversation conversation(route, "lost", epoch);
        ASSERT_TRUE(conversation.open().ok());
        const wire::ExecuteRequest first = conversation.next({1, 2});
        const wire::ExecuteRequest second = conversation.next({3, 4});
        const bool both = epoch % 2 == 0;
        {
            ExecuteCall execute(conversation);
            execute.send(first);
            ASSERT_EQ(execute.executed(), 0);
            if (both) {
                execute.send(second);
                ASSERT_EQ(execute.executed(), 1);
            }
        }
        ExecuteCall execute(conversation);
        if (!both) {
            execute.send(second);
        }
        execute.send(conversation.next({5}));
        EXPECT_EQ(collect(conversation, 0, 3).size(), 3u) << epoch;
    }
}

TEST(Failures, TimeThatRunsOutEndsTheEpoch) {
    for (const size_t slow : {0, 1, 2}) {
        Route route({0, 1, 3, 4});
        route.workers[slow]->knobs->delay_ms = 120;
        Conversation conversation(route, "late");
        ASSERT_TRUE(conversation.open().ok());
        ExecuteCall execute(conversation);
        wire::ExecuteRequest request = conversation.next({1});
        request.mutable_frame()->set_remaining_ms(60);
        execute.send(request);
        const grpc::Status status = execute.end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
        const auto failure = detail_of<wire::Failure>(status);
        ASSERT_TRUE(failure);
        EXPECT_EQ(failure->range().first(), route.workers[slow]->about.range().first());
        EXPECT_TRUE(eventually([&] { return route.head().status().slots_free() == 2; }));
        EXPECT_TRUE(eventually([&] { return route.workers[slow]->status().slots_free() == 2; }));
    }
}

TEST(Failures, EnoughTimeIsEnough) {
    Route route({0, 1, 3, 4});
    Conversation conversation(route, "in-time");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    wire::ExecuteRequest request = conversation.next({1});
    request.mutable_frame()->set_remaining_ms(10000);
    execute.send(request);
    EXPECT_TRUE(results.next());
}

// A slow tail must not let the stages before it pile up frames.
TEST(Failures, ASlowTailHoldsTheHeadBack) {
    FakeSettings settings;
    Route route({0, 2, 4}, settings);
    route.tail().knobs->delay_ms = 150;
    Conversation conversation(route, "slow");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    const int in_flight = static_cast<int>(route.head().about.limits().max_inflight_frames());
    const int frames = 3 * in_flight;
    std::thread sender([&] {
        for (int i = 0; i < frames; ++i) {
            execute.send(conversation.next({1, 2}));
        }
    });
    for (int done = 0; done < frames; ++done) {
        EXPECT_LE(route.head().knobs->executed - route.tail().knobs->executed, in_flight + 1);
        ASSERT_TRUE(results.next());
        if (done == 3) {
            route.tail().knobs->delay_ms = 5;
        }
    }
    sender.join();
    EXPECT_EQ(route.head().knobs->executed, frames);
    execute.send_all_done();
    EXPECT_TRUE(execute.end().ok());
}

TEST(Failures, AbruptClientDeathsLeaveEverySlotFree) {
    constexpr int DEATHS = 1000;
    Route route({0, 2, 4});
    for (int i = 1; i <= DEATHS; ++i) {
        Conversation conversation(route, i % 2 ? "odd" : "even", static_cast<uint64_t>(i));
        ASSERT_TRUE(conversation.open().ok()) << i;
        ExecuteCall execute(conversation);
        if (i % 3 != 0) {
            execute.send(conversation.next({1, 2}));
        }
        if (i % 3 != 0 && i % 5 == 0) {
            ResultsCall results(conversation);
            results.next();
        }
    }
    for (const auto & worker : route.workers) {
        EXPECT_EQ(worker->status().slots_free(), 0u);
        EXPECT_TRUE(close_session(*worker, "odd", DEATHS - 1).ok());
        EXPECT_TRUE(close_session(*worker, "even", DEATHS).ok());
        EXPECT_EQ(worker->status().slots_free(), 2u);
    }
}

TEST(Failures, ManySessionsOnManyThreadsStayApart) {
    FakeSettings settings;
    settings.slots = 8;
    Route route({0, 1, 3, 4}, settings);
    std::vector<std::thread> clients;
    std::atomic<int> right{0};
    for (int client = 0; client < 4; ++client) {
        clients.emplace_back([&, client] {
            for (int turn = 0; turn < 6; ++turn) {
                const int number = client * 2 + turn % 2;
                Conversation conversation(route, "stress-" + std::to_string(number), static_cast<uint64_t>(turn) + 1, turn % 3 == 0);
                if (!conversation.open().ok()) {
                    continue;
                }
                const std::vector<std::vector<int32_t>> prompt = {{number, turn, 3, 4}, {turn, number}, {9}};
                std::unique_ptr<ResultsCall> results;
                if (!conversation.chain) {
                    results = std::make_unique<ResultsCall>(conversation);
                }
                ExecuteCall execute(conversation);
                right += converse(conversation, execute, results.get(), prompt, 12) == expected(settings, prompt, 12);
            }
        });
    }
    for (std::thread & client : clients) {
        client.join();
    }
    EXPECT_EQ(right, 24);
}

}  // namespace dgr

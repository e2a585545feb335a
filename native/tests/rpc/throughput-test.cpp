// Throughput mode: frames of several sessions share a call of the engine, and each session gets its own answers.

#include "rpc/route.h"

#include <gtest/gtest.h>

#include <thread>

namespace dgr {

namespace {

constexpr size_t N_SESSIONS = 4;

FakeSettings crowded() {
    FakeSettings settings;
    settings.slots    = N_SESSIONS;
    settings.n_ubatch = 8;
    return settings;
}

struct Caller {
    Caller(Route & route, const std::string & id) : conversation(route, id) {
        EXPECT_TRUE(conversation.open().ok());
        results = std::make_unique<ResultsCall>(conversation);
        execute = std::make_unique<ExecuteCall>(conversation);
    }

    Conversation                 conversation;
    std::unique_ptr<ResultsCall> results;
    std::unique_ptr<ExecuteCall> execute;
};

// A frame that keeps the engine busy while the others arrive.
void occupy(Worker & worker, Caller & caller) {
    const int before = worker.knobs->calls;
    worker.knobs->delay_ms = 200;
    caller.execute->send(caller.conversation.next({1, 2, 3}));
    ASSERT_TRUE(eventually([&] { return worker.knobs->calls == before + 1; }));
    worker.knobs->delay_ms = 0;
}

}  // namespace

TEST(Throughput, IsWhatTheWorkerSays) {
    Route exact({0, 4});
    Route throughput({0, 4}, {}, in_mode(Mode::throughput));
    EXPECT_EQ(exact.head().about.mode(), "exact");
    EXPECT_EQ(throughput.head().about.mode(), "throughput");
}

TEST(Throughput, FramesThatWaitTogetherAreComputedTogether) {
    for (const Mode mode : {Mode::exact, Mode::throughput}) {
        Route    route({0, 4}, crowded(), in_mode(mode));
        Worker & worker = route.head();
        std::vector<std::unique_ptr<Caller>> callers;
        for (size_t i = 0; i < N_SESSIONS; ++i) {
            callers.push_back(std::make_unique<Caller>(route, "caller-" + std::to_string(i)));
        }
        occupy(worker, *callers[0]);
        for (size_t i = 1; i < N_SESSIONS; ++i) {
            callers[i]->execute->send(callers[i]->conversation.next({static_cast<int32_t>(i)}));
        }
        for (size_t i = 1; i < N_SESSIONS; ++i) {
            const auto result = callers[i]->results->next();
            ASSERT_TRUE(result.has_value());
            EXPECT_EQ(result->token(), expected(crowded(), {{static_cast<int32_t>(i)}}, 0).tokens[0]);
        }
        EXPECT_EQ(worker.knobs->executed, static_cast<int>(N_SESSIONS));
        EXPECT_EQ(worker.knobs->calls, mode == Mode::exact ? static_cast<int>(N_SESSIONS) : 2);
    }
}

TEST(Throughput, ARefusedFrameLeavesItsNeighboursAlone) {
    Route    route({0, 4}, crowded(), in_mode(Mode::throughput));
    Worker & worker = route.head();
    Caller   busy(route, "busy"), left(route, "left"), bad(route, "bad"), right(route, "right");
    occupy(worker, busy);
    worker.knobs->refused_slot = 2;  // the engine's own check, after all of the worker's
    left.execute->send(left.conversation.next({1}));
    bad.execute->send(bad.conversation.next({2}));
    right.execute->send(right.conversation.next({3}));
    EXPECT_TRUE(left.results->next().has_value());
    EXPECT_TRUE(right.results->next().has_value());
    EXPECT_EQ(bad.execute->end().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(worker.knobs->executed, 3);
}

TEST(Throughput, AFailedCallEndsEverySessionInItAndNoOther) {
    Route    route({0, 4}, crowded(), in_mode(Mode::throughput));
    Worker & worker = route.head();
    Caller   busy(route, "busy"), one(route, "one"), two(route, "two"), other(route, "other");
    occupy(worker, busy);
    worker.knobs->fail = true;
    one.execute->send(one.conversation.next({1}));
    two.execute->send(two.conversation.next({2}));
    EXPECT_EQ(one.execute->end().error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(two.execute->end().error_code(), grpc::StatusCode::INTERNAL);
    worker.knobs->fail = false;
    other.execute->send(other.conversation.next({3}));
    EXPECT_TRUE(other.results->next().has_value());
    EXPECT_EQ(worker.status().slots_free(), 2U);
    EXPECT_EQ(worker.status().failed_frames(), 2U);
}

TEST(Throughput, AWaitingFrameOfASessionThatWasClosedIsForgotten) {
    Route    route({0, 4}, crowded(), in_mode(Mode::throughput));
    Worker & worker = route.head();
    Caller   busy(route, "busy"), gone(route, "gone");
    gone.execute->send(gone.conversation.next({9}));
    EXPECT_TRUE(gone.results->next().has_value());  // its stream is known, so closing ends that
    occupy(worker, busy);
    gone.execute->send(gone.conversation.next({1}));
    gone.conversation.close();
    EXPECT_EQ(gone.execute->end().error_code(), grpc::StatusCode::ABORTED);
    busy.execute->send(busy.conversation.next({4}));
    EXPECT_TRUE(busy.results->next().has_value());
    EXPECT_TRUE(busy.results->next().has_value());
    EXPECT_EQ(worker.status().slots_free(), 3U);
}

// Many sessions at once, each with frames ahead of their answers and a half-closed end.
TEST(Throughput, EverySessionOfACrowdGetsWhatItWouldGetAlone) {
    for (const std::vector<uint32_t> & cuts : {std::vector<uint32_t>{0, 4}, std::vector<uint32_t>{0, 1, 3, 4}}) {
        Route route(cuts, crowded(), in_mode(Mode::throughput));
        std::vector<std::thread> threads;
        for (size_t i = 0; i < N_SESSIONS; ++i) {
            threads.emplace_back([&route, i] {
                const auto id = static_cast<int32_t>(i);
                const std::vector<std::vector<int32_t>> prompt(3 + i, {id, 2, 3, 4});
                Caller caller(route, "crowd-" + std::to_string(i));
                EXPECT_EQ(converse(caller.conversation, *caller.execute, caller.results.get(), prompt, 8),
                          expected(crowded(), prompt, 8));
                caller.execute->send_all_done();
                EXPECT_TRUE(caller.execute->end().ok());
            });
        }
        for (std::thread & thread : threads) {
            thread.join();
        }
        for (const auto & worker : route.workers) {
            EXPECT_LE(worker->knobs->calls, worker->knobs->executed);
        }
    }
}

}  // namespace dgr

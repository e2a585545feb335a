// Sessions of silent clients end; those of slow, computing or thinking ones do not.

#include "rpc/engine-thread.h"
#include "rpc/route.h"

#include <gtest/gtest.h>

#include <future>

namespace dgr {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

static ServerOptions lease_of(int ms) {
    ServerOptions options;
    options.limits.lease = milliseconds(ms);
    return options;
}

static void sleep_ms(int ms) {
    std::this_thread::sleep_for(milliseconds(ms));
}

TEST(EngineThread, AnAlarmRingsBehindWhatIsQueuedAndAnEarlierOneWins) {
    std::promise<steady_clock::time_point> rang;
    std::atomic<int> before{0};
    EngineThread thread;
    thread.on_alarm([&](steady_clock::time_point at) {
        EXPECT_EQ(before, 2);
        rang.set_value(at);
    });
    const auto start = steady_clock::now();
    thread.ring_at(start + std::chrono::hours(1));
    thread.ring_at(start + milliseconds(30));
    thread.ring_at(start + std::chrono::hours(2));
    thread.post([&] {
        sleep_ms(60);
        ++before;
    });
    thread.post([&] { ++before; });
    auto future = rang.get_future();
    ASSERT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_GE(future.get(), start + milliseconds(30));
}

TEST(EngineThread, AnAlarmWakesAnIdleThreadAndAStopDoesNotWaitForIt) {
    std::promise<void> rang;
    EngineThread thread;
    thread.on_alarm([&](steady_clock::time_point) { rang.set_value(); });
    thread.ring_at(steady_clock::now() + milliseconds(20));
    EXPECT_EQ(rang.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    thread.ring_at(steady_clock::now() + std::chrono::hours(1));
    thread.stop();
}

TEST(Leases, DescribeStatesTheLease) {
    Route route({0, 4}, {}, lease_of(1500));
    EXPECT_EQ(route.head().about.limits().lease_ms(), 1500u);
    EXPECT_EQ(Route({0, 4}).head().about.limits().lease_ms(), 60000u);
}

TEST(Leases, ASessionThatIsOpenedAndNeverUsedExpires) {
    Route route({0, 2, 4}, {}, lease_of(200));
    Conversation conversation(route, "unused");
    ASSERT_TRUE(conversation.open().ok());
    for (const auto & worker : route.workers) {
        EXPECT_TRUE(eventually([&] { return worker->status().slots_free() == 2; }));
    }
    ExecuteCall execute(conversation);
    EXPECT_TRUE(detail_of<wire::CacheMiss>(execute.end()));  // a new epoch helps
    Conversation again(route, "unused", 2);
    ASSERT_TRUE(again.open().ok());
}

TEST(Leases, AClientThatIsGoneLosesItsSessionOnEveryStage) {
    Route route({0, 1, 3, 4}, {}, lease_of(200));
    Conversation conversation(route, "gone");
    {
        ASSERT_TRUE(conversation.open().ok());
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        execute.send(conversation.next({1, 2}));
        ASSERT_TRUE(results.next());
    }
    for (const auto & worker : route.workers) {
        EXPECT_TRUE(eventually([&] { return worker->status().slots_free() == 2; }));
        EXPECT_EQ(worker->status().failed_frames(), 0u);
    }
}

TEST(Leases, AClientThatThinksWithOpenStreamsKeepsItsSession) {
    Route route({0, 2, 4}, {}, lease_of(400));
    Conversation conversation(route, "thinking");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    for (int i = 0; i < 2; ++i) {
        execute.send(conversation.next({1, 2}));
        ASSERT_TRUE(results.next()) << i;
        sleep_ms(1000);  // longer than a lease, far shorter than ten
    }
    execute.send(conversation.next({3}));
    EXPECT_TRUE(results.next());
}

TEST(Leases, OpenStreamsDoNotHoldASilentSessionForEver) {
    Route route({0, 2, 4}, {}, lease_of(200));
    Conversation conversation(route, "silent");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2}));
    ASSERT_TRUE(results.next());
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
    ASSERT_TRUE(detail_of<wire::Failure>(status)) << status.error_message();
    EXPECT_EQ(detail_of<wire::Failure>(status)->cause(), "lease expired");
    EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
    for (const auto & worker : route.workers) {
        EXPECT_TRUE(eventually([&] { return worker->status().slots_free() == 2; }));
    }
}

// Longer than ten leases, wherever it is: stages that wait say so to those before them.
TEST(Leases, AStageThatComputesForLongIsNotSilent) {
    for (const size_t slow : {0, 1, 2, 3}) {
        Route route({0, 1, 2, 3, 4}, {}, lease_of(200));
        Conversation conversation(route, "slow");
        ASSERT_TRUE(conversation.open().ok());
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        execute.send(conversation.next({1, 2}));
        ASSERT_TRUE(results.next());
        route.workers[slow]->knobs->delay_ms = 1200;
        execute.send(conversation.next({3}));
        execute.send(conversation.next({4}));
        EXPECT_TRUE(results.next()) << slow;
        EXPECT_TRUE(results.next()) << slow;
    }
}

// The head's frames wait for a session that computes; their clients were heard all the same.
TEST(Leases, AnotherSessionsComputingCostsNobodyTheLease) {
    Route route({0, 4}, {}, lease_of(150));
    route.head().knobs->delay_ms = 500;
    Conversation one(route, "one"), other(route, "other");
    ASSERT_TRUE(one.open().ok());
    ASSERT_TRUE(other.open().ok());
    ResultsCall one_results(one), other_results(other);
    ExecuteCall one_execute(one), other_execute(other);
    for (int turn = 0; turn < 3; ++turn) {
        one_execute.send(one.next({1}));
        other_execute.send(other.next({2}));
        EXPECT_TRUE(one_results.next());
        EXPECT_TRUE(other_results.next());
    }
}

// Clients that die at every moment of a session's life, and never close it.
TEST(Leases, AThousandAbruptDeathsLeaveEverySlotFree) {
    constexpr int DEATHS = 1000;
    FakeSettings settings;
    settings.slots = 64;
    Route route({0, 2, 4}, settings, lease_of(100));
    for (int i = 0; i < DEATHS; ++i) {
        // clients that come when all slots are still held by the dead wait for one
        Conversation conversation(route, "death-" + std::to_string(i));
        ASSERT_TRUE(eventually([&] { return conversation.open().ok(); })) << i;
        if (i % 4 == 0) {
            continue;
        }
        ExecuteCall execute(conversation);
        if (i % 4 > 1) {
            execute.send(conversation.next({1, 2}));
        }
        if (i % 4 > 2) {
            ResultsCall results(conversation);
            results.next();
        }
    }
    for (const auto & worker : route.workers) {
        EXPECT_TRUE(eventually([&] { return worker->status().slots_free() == settings.slots; }));
        const wire::StatusResponse status = worker->status();
        EXPECT_EQ(worker->knobs->open_slots, 0);
        EXPECT_EQ(status.failed_frames(), 0u);
    }
}

}  // namespace dgr

// The client that measures, against stages in this process: that it does what it times, not how long that takes.

#include "bench/delay-proxy.h"
#include "bench/echo.h"
#include "bench/frame-times.h"
#include "bench/session-times.h"
#include "bench/tcp.h"
#include "rpc/route.h"

#include <gtest/gtest.h>

namespace dgr::bench {

using std::chrono::milliseconds;

static std::vector<std::string> addresses_of(const Route & route) {
    std::vector<std::string> addresses;
    for (const auto & worker : route.workers) {
        addresses.push_back(address_of(worker->port));
    }
    return addresses;
}

static FakeSettings with_slots(uint32_t slots) {
    FakeSettings settings;
    settings.slots = slots;
    return settings;
}

TEST(BenchClient, RunsAPromptAndTokensOnEveryStage) {
    Route stages({0, 2, 4});
    const BenchRoute route(addresses_of(stages));
    Shape shape;
    shape.prefill_rows  = 3 * route.n_ubatch() + 1;
    shape.decode_tokens = 5;
    const RunTimes times = run_sessions(route, shape);
    ASSERT_EQ(times.sessions.size(), 1u);
    EXPECT_EQ(times.sessions[0].frames, 4u);
    EXPECT_EQ(times.sessions[0].token_us.size(), 5u);
    EXPECT_EQ(times.sessions[0].tail_us.size(), 5u);
    EXPECT_GT(times.prefill_us, 0);
    EXPECT_GT(times.decode_us, 0);
    for (const auto & worker : stages.workers) {
        EXPECT_EQ(worker->status().executed_frames(), 9u);
        EXPECT_EQ(worker->status().executed_rows(), shape.prefill_rows + 5u);
        EXPECT_EQ(worker->status().rejected_frames(), 0u);
    }
}

TEST(BenchClient, GivesItsSlotsBack) {
    Route stages({0, 4});
    const BenchRoute route(addresses_of(stages));
    for (int i = 0; i < 3; ++i) {
        run_sessions(route, {1, 4, 0, 2});
        EXPECT_EQ(stages.head().status().slots_free(), stages.head().status().slots_total());
    }
}

TEST(BenchClient, SendsMoreFramesThanThereIsCreditFor) {
    Route stages({0, 2, 4});
    const BenchRoute route(addresses_of(stages));
    const uint32_t frames = 3 * route.head().about.limits().max_inflight_frames();
    const RunTimes times = run_sessions(route, {1, frames, 1, 0});
    EXPECT_EQ(times.sessions[0].frames, frames);
    EXPECT_EQ(stages.tail().status().executed_frames(), frames);
}

TEST(BenchClient, RunsSessionsBesideEachOther) {
    Route stages({0, 2, 4}, with_slots(4));
    const BenchRoute route(addresses_of(stages));
    const RunTimes times = run_sessions(route, {4, 2, 0, 6});
    ASSERT_EQ(times.sessions.size(), 4u);
    for (const SessionTimes & session : times.sessions) {
        EXPECT_EQ(session.token_us.size(), 6u);
        EXPECT_LE(session.prefill_us, times.prefill_us);
    }
    EXPECT_EQ(stages.tail().status().executed_rows(), 4u * (2u + 6u));
}

TEST(BenchClient, SaysWhatAStageRefusedAndLeavesTheOthersWell) {
    Route stages({0, 2, 4}, with_slots(2));
    const BenchRoute route(addresses_of(stages));
    EXPECT_THROW(run_sessions(route, {3, 2, 0, 2}), BenchError);
    EXPECT_TRUE(eventually([&] { return stages.head().status().slots_free() == 2; }));
    EXPECT_EQ(run_sessions(route, {2, 2, 0, 2}).sessions.size(), 2u);
}

TEST(BenchClient, SaysWhichStageFailed) {
    Route stages({0, 2, 4});
    const BenchRoute route(addresses_of(stages));
    stages.tail().knobs->fail = true;
    try {
        run_sessions(route, {1, 2, 1, 8});
        FAIL() << "it did not fail";
    } catch (const BenchError & error) {
        EXPECT_NE(std::string(error.what()).find("stage [2, 4)"), std::string::npos) << error.what();
    }
}

TEST(BenchClient, RefusesStagesThatAreNoRoute) {
    Route stages({0, 2, 4});
    EXPECT_THROW(BenchRoute({addresses_of(stages)[0]}), BenchError);
    EXPECT_THROW(BenchRoute({addresses_of(stages)[1], addresses_of(stages)[0]}), BenchError);
    EXPECT_THROW(BenchRoute({}), BenchError);
}

TEST(BenchFrames, GoToTheTailAloneAndOverManySessions) {
    Route stages({0, 2, 4});
    const BenchStage tail = describe_stage(address_of(stages.tail().port));
    const uint32_t rows  = tail.about.numerics().n_ubatch();
    const uint32_t count = 2 * tail.about.slot_classes(0).n_ctx() / rows + 1;
    const auto times = time_frames(tail, rows, count);
    ASSERT_EQ(times.size(), count);
    for (const FrameTime & time : times) {
        EXPECT_GE(time.bytes, rows * tail.about.boundary().width() * sizeof(float));
        EXPECT_GE(time.us, static_cast<double>(time.compute_us));
    }
    EXPECT_EQ(stages.tail().status().executed_frames(), count);
    EXPECT_EQ(stages.head().status().executed_frames(), 0u);
    EXPECT_THROW(time_frames(describe_stage(address_of(stages.head().port)), 1, 1), BenchError);
}

TEST(BenchEcho, AnswersEveryMessage) {
    const EchoServer server;
    EXPECT_EQ(time_echo(address_of(server.port()), 1, 3).size(), 3u);
    EXPECT_EQ(time_echo(address_of(server.port()), 5 << 20, 2).size(), 2u);
}

TEST(BenchEcho, OfTcpAnswersOneCallerAfterTheOther) {
    const TcpEcho echo;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(time_tcp_echo(address_of(echo.port()), 100000, 4).size(), 4u);
    }
}

TEST(DelayProxy, HandsOnWhatCameUnchangedAndNoSoonerThanItsDelay) {
    const TcpEcho echo;
    const DelayProxy proxy(address_of(echo.port()), milliseconds(20));
    for (const double us : time_tcp_echo(address_of(proxy.port()), 1 << 20, 3)) {
        EXPECT_GE(us, 40000);
    }
    const Socket socket = connect_to_address(address_of(proxy.port()));
    const std::string sent = "what came";
    ASSERT_TRUE(socket.send_all(sent.data(), sent.size()));
    std::string got(sent.size(), '\0');
    for (size_t at = 0; at < got.size();) {
        const size_t more = socket.receive(got.data() + at, got.size() - at);
        ASSERT_GT(more, 0u);
        at += more;
    }
    EXPECT_EQ(got, sent);
}

TEST(DelayProxy, EndsWithCallersThatWaitAndTargetsThatAreGone) {
    auto echo = std::make_unique<TcpEcho>();
    auto proxy = std::make_unique<DelayProxy>(address_of(echo->port()), milliseconds(1));
    const Socket waiting = connect_to_address(address_of(proxy->port()));
    char byte = 'x';
    ASSERT_TRUE(waiting.send_all(&byte, 1));
    ASSERT_EQ(waiting.receive(&byte, 1), 1u);
    proxy.reset();
    EXPECT_EQ(waiting.receive(&byte, 1), 0u);
    const int port = echo->port();
    echo.reset();
    proxy = std::make_unique<DelayProxy>(address_of(port), milliseconds(1));
    const Socket refused = connect_to_address(address_of(proxy->port()));
    EXPECT_EQ(refused.receive(&byte, 1), 0u);
}

TEST(DelayProxy, CarriesARoute) {
    Route stages({0, 2, 4});
    std::vector<std::unique_ptr<DelayProxy>> proxies;
    std::vector<std::string> addresses;
    for (const std::string & address : addresses_of(stages)) {
        proxies.push_back(std::make_unique<DelayProxy>(address, milliseconds(5)));
        addresses.push_back(address_of(proxies.back()->port()));
    }
    const RunTimes times = run_sessions(BenchRoute(addresses), {1, 8, 0, 3});
    for (const double us : times.sessions[0].token_us) {
        EXPECT_GE(us, 15000);  // to the head, to the tail, and back
    }
}

}  // namespace dgr::bench

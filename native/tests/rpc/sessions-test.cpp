// Opening, closing, attaching: who may, and what every refusal names.

#include "rpc/route.h"

#include <gtest/gtest.h>

#include <functional>

namespace dgr {

TEST(Sessions, EachMismatchAtOpenNamesItsField) {
    Route route({0, 2, 3, 4});
    using Spoil = std::function<void(wire::OpenSessionRequest &)>;
    const std::vector<std::pair<std::string, Spoil>> spoils = {
        {"session", [](auto & r) { r.set_session(""); }},
        {"session", [](auto & r) { r.set_session(std::string(65, 'a')); }},
        {"session", [](auto & r) { r.set_session("a/b"); }},
        {"epoch", [](auto & r) { r.set_epoch(0); }},
        {"key", [](auto & r) { r.set_key(std::string(31, 'k')); }},
        {"cache.n_ctx", [](auto & r) { r.mutable_cache()->set_n_ctx(0); }},
        {"artifact_digest", [](auto & r) { r.set_artifact_digest(std::string(64, 'f')); }},
        {"range", [](auto & r) { r.mutable_range()->set_last(9); }},
        {"range", [](auto & r) { r.mutable_range()->set_first(0); }},
        {"lane_digest", [](auto & r) { r.set_lane_digest(std::string(64, 'f')); }},
        {"numerics_digest", [](auto & r) { r.set_numerics_digest(std::string(32, 'f')); }},
        {"cache.type_k", [](auto & r) { r.mutable_cache()->set_type_k("q8_0"); }},
        {"cache.type_v", [](auto & r) { r.mutable_cache()->set_type_v("q8_0"); }},
        {"cache.n_ubatch", [](auto & r) { r.mutable_cache()->set_n_ubatch(99); }},
        {"cache.flash_attn", [](auto & r) { r.mutable_cache()->set_flash_attn(true); }},
        {"cache.state_schema_version", [](auto & r) { r.mutable_cache()->set_state_schema_version(9); }},
        {"predecessor", [](auto & r) { r.clear_predecessor(); }},
        {"predecessor.client", [](auto & r) { r.mutable_predecessor()->set_client(true); }},
        {"predecessor.instance", [](auto & r) { r.mutable_predecessor()->clear_instance(); }},
        {"predecessor.range.last", [](auto & r) { r.mutable_predecessor()->mutable_range()->set_last(1); }},
        {"predecessor.patched_tree", [](auto & r) { r.mutable_predecessor()->set_patched_tree("f"); }},
        {"predecessor.artifact_digest", [](auto & r) { r.mutable_predecessor()->set_artifact_digest("f"); }},
        {"predecessor.boundary_digest", [](auto & r) { r.mutable_predecessor()->set_boundary_digest("f"); }},
        {"predecessor.n_ubatch", [](auto & r) { r.mutable_predecessor()->set_n_ubatch(9); }},
        {"predecessor.numerics_digest", [](auto & r) { r.mutable_predecessor()->set_numerics_digest("f"); }},
        {"successor", [](auto & r) { r.clear_successor(); }},
        {"successor", [](auto & r) { r.clear_successor_address(); }},
        {"successor_address", [](auto & r) { r.set_successor_address("192.0.2.1:4000"); }},
        {"successor_address", [](auto & r) { r.set_successor_address("example.org:4000"); }},
        {"successor_address", [](auto & r) { r.set_successor_address("127.0.0.1:1"); }},
        {"successor.range.first", [](auto & r) { r.mutable_successor()->mutable_range()->set_first(1); }},
        {"successor.range", [](auto & r) { r.mutable_successor()->mutable_range()->set_last(9); }},
        {"successor.patched_tree", [](auto & r) { r.mutable_successor()->set_patched_tree("f"); }},
        {"successor.artifact_digest", [](auto & r) { r.mutable_successor()->set_artifact_digest("f"); }},
        {"successor.boundary_digest", [](auto & r) { r.mutable_successor()->set_boundary_digest("f"); }},
        {"successor.n_ubatch", [](auto & r) { r.mutable_successor()->set_n_ubatch(9); }},
        {"successor.numerics_digest", [](auto & r) { r.mutable_successor()->set_numerics_digest("f"); }},
        {"successor.instance", [](auto & r) { r.mutable_successor()->set_instance("somebody"); }},
    };
    Worker & middle = *route.workers[1];
    for (const auto & [field, spoil] : spoils) {
        wire::OpenSessionRequest request = route.open_request(1, "mismatch", 1);
        spoil(request);
        EXPECT_EQ(rejected_field(open_session(middle, request)), field);
    }
    EXPECT_EQ(middle.status().slots_free(), 2u);
    EXPECT_TRUE(open_session(middle, route.open_request(1, "mismatch", 1)).ok());

    wire::OpenSessionRequest tail = route.open_request(2, "tail", 1);
    tail.set_successor_address("127.0.0.1:4000");
    EXPECT_EQ(rejected_field(open_session(route.tail(), tail)), "successor");
    wire::OpenSessionRequest head = route.open_request(0, "head", 1);
    head.mutable_predecessor()->set_client(false);
    EXPECT_EQ(rejected_field(open_session(route.head(), head)), "predecessor.client");
}

TEST(Sessions, AWorkerConnectsOnlyWhereItsListSaysSo) {
    ServerOptions options;
    options.allowed_next       = AllowList({"127.0.0.1:1", "10.0.0.0/8"});
    options.insecure_plaintext = true;
    Route route({0, 2, 4}, {}, options);
    const wire::OpenSessionRequest request = route.open_request(0, "elsewhere", 1);
    const grpc::Status status = open_session(route.head(), request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_NE(status.error_message().find(request.successor_address()), std::string::npos);
    EXPECT_NE(status.error_message().find("--allow-next"), std::string::npos);
    const auto detail = detail_of<wire::Rejected>(status);
    ASSERT_TRUE(detail);
    EXPECT_EQ(detail->field(), "successor_address");
    EXPECT_EQ(detail->legal(), "127.0.0.1:1, 10.0.0.0/8");

    options.allowed_next = AllowList({address_of(route.tail().port)});
    FakeSettings settings;
    settings.range = {0, 2};
    Worker head(settings, options);
    EXPECT_TRUE(open_session(head, request).ok());
}

TEST(Sessions, TooLittleRoomNamesTheLargestFreeSlot) {
    Route route({0, 4});
    wire::OpenSessionRequest request = route.open_request(0, "large", 1);
    request.mutable_cache()->set_n_ctx(65);
    grpc::Status status = open_session(route.head(), request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(rejected_field(status), "cache.n_ctx");
    EXPECT_NE(detail_of<wire::Rejected>(status)->legal().find("64"), std::string::npos);

    ASSERT_TRUE(open_session(route.head(), route.open_request(0, "a", 1)).ok());
    ASSERT_TRUE(open_session(route.head(), route.open_request(0, "b", 1)).ok());
    status = open_session(route.head(), route.open_request(0, "c", 1));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    ASSERT_TRUE(close_session(route.head(), "a", 1).ok());
    EXPECT_TRUE(open_session(route.head(), route.open_request(0, "c", 1)).ok());
}

TEST(Sessions, AHigherEpochThatDoesNotFitLeavesTheSessionAsItWas) {
    Route route({0, 4});
    Conversation session(route, "grows", 1);
    ASSERT_TRUE(session.open().ok());
    ASSERT_TRUE(open_session(route.head(), route.open_request(0, "other", 1)).ok());
    ResultsCall results(session);
    ExecuteCall execute(session);
    wire::OpenSessionRequest larger = route.open_request(0, "grows", 2);
    larger.mutable_cache()->set_n_ctx(65);
    const grpc::Status status = open_session(route.head(), larger);
    EXPECT_EQ(rejected_field(status), "cache.n_ctx");
    EXPECT_NE(detail_of<wire::Rejected>(status)->legal().find("64"), std::string::npos);  // its own slot

    execute.send(session.next({1, 2}));
    EXPECT_EQ(execute.executed(), 0);
    EXPECT_TRUE(results.next());
    EXPECT_TRUE(open_session(route.head(), route.open_request(0, "grows", 2)).ok());  // in the place of its own
}

TEST(Sessions, AnOlderEpochTouchesNothing) {
    Route route({0, 4});
    Conversation current(route, "epochs", 5), older(route, "epochs", 4);
    ASSERT_TRUE(current.open().ok());
    ResultsCall results(current);
    ExecuteCall execute(current);
    execute.send(current.next({1, 2}));
    ASSERT_EQ(execute.executed(), 0);

    for (const uint64_t epoch : {4, 5}) {
        const grpc::Status status = open_session(route.head(), route.open_request(0, "epochs", epoch));
        EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
        ASSERT_TRUE(detail_of<wire::CacheMiss>(status));
        EXPECT_EQ(detail_of<wire::CacheMiss>(status)->held_epoch(), 5u);
    }
    bool closed = true;
    EXPECT_TRUE(close_session(route.head(), "epochs", 4, &closed).ok());
    EXPECT_FALSE(closed);
    ExecuteCall stale(older);
    EXPECT_EQ(detail_of<wire::CacheMiss>(stale.end())->held_epoch(), 5u);
    ResultsCall stale_results(older);
    EXPECT_TRUE(detail_of<wire::CacheMiss>(stale_results.end()));

    execute.send(current.next({3}));
    EXPECT_EQ(execute.executed(), 1);
    EXPECT_TRUE(results.next() && results.next());
}

TEST(Sessions, AHigherEpochReplacesAndStartsAtTheBeginning) {
    Route route({0, 2, 4});
    Conversation first(route, "again", 1), second(route, "again", 2);
    ASSERT_TRUE(first.open().ok());
    ResultsCall old_results(first);
    ExecuteCall old_execute(first);
    old_execute.send(first.next({1, 2}));
    ASSERT_TRUE(old_results.next());
    ASSERT_TRUE(second.open().ok());
    EXPECT_EQ(old_results.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(old_execute.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(route.head().status().slots_free(), 1u);
    ResultsCall results(second);
    ExecuteCall execute(second);
    EXPECT_EQ(converse(second, execute, &results, {{9, 8}}, 3), expected(FakeSettings(), {{9, 8}}, 3));
}

TEST(Sessions, AnotherKeyIsRefusedEverywhere) {
    Route route({0, 4});
    Conversation conversation(route, "keyed");
    ASSERT_TRUE(conversation.open().ok());
    const auto denied = grpc::StatusCode::PERMISSION_DENIED;
    const std::string other(32, 'o');

    wire::OpenSessionRequest open = route.open_request(0, "keyed", 2);
    open.set_key(other);
    EXPECT_EQ(open_session(route.head(), open).error_code(), denied);

    wire::ExecuteRequest hello = conversation.hello();
    hello.mutable_hello()->set_key(other);
    EXPECT_EQ(ExecuteCall(route.head().port, hello).end().error_code(), denied);

    wire::ResultsRequest results = conversation.results_request();
    results.set_key(other);
    EXPECT_EQ(ResultsCall(route.head().port, results).end().error_code(), denied);

    grpc::ClientContext context;
    wire::CloseSessionRequest close;
    close.set_session("keyed");
    close.set_epoch(1);
    close.set_key(other);
    wire::CloseSessionResponse response;
    EXPECT_EQ(route.head().stub->CloseSession(&context, close, &response).error_code(), denied);
    EXPECT_EQ(route.head().status().slots_free(), 1u);
}

TEST(Sessions, OnlyThePredecessorNamedAtOpenSendsFrames) {
    Route route({0, 2, 4});
    Conversation conversation(route, "sender");
    ASSERT_TRUE(conversation.open().ok());
    wire::ExecuteRequest stranger = conversation.hello();
    stranger.mutable_hello()->mutable_sender()->set_client(false);
    stranger.mutable_hello()->mutable_sender()->set_instance("stranger");
    for (const wire::ExecuteRequest & hello : {stranger, conversation.hello()}) {
        const grpc::Status status = ExecuteCall(route.tail().port, hello).end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
        EXPECT_EQ(rejected_field(status), "hello.sender");
    }
    EXPECT_EQ(ExecuteCall(route.head().port, stranger).end().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST(Sessions, ResultsMayBeAttachedLateFromAnyKeptFrame) {
    Route route({0, 2, 4});
    Conversation conversation(route, "late");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    for (int i = 0; i < 4; ++i) {
        execute.send(conversation.next({i, i + 1}));
        ASSERT_EQ(execute.executed(), i);
    }
    ASSERT_TRUE(eventually([&] { return route.tail().knobs->executed == 4; }));
    ResultsCall all(conversation);
    for (uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(all.next()->sequence(), i);
    }
    ResultsCall last(conversation, 3);
    EXPECT_EQ(all.end().error_code(), grpc::StatusCode::ABORTED);  // displaced
    EXPECT_EQ(last.next()->sequence(), 3u);
    execute.send(conversation.next({7}));
    EXPECT_EQ(last.next()->sequence(), 4u);
}

TEST(Sessions, ResultsComeFromTheTailAlone) {
    Route route({0, 2, 4});
    Conversation direct(route, "direct"), chained(route, "chained", 1, true);
    ASSERT_TRUE(direct.open().ok());
    ASSERT_TRUE(chained.open().ok());
    ResultsCall of_head(route.head().port, direct.results_request());
    EXPECT_EQ(of_head.end().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    ResultsCall of_chain(chained);
    EXPECT_EQ(of_chain.end().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(Sessions, ClosingIsIdempotent) {
    Route route({0, 2, 4});
    Conversation conversation(route, "closing");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    ResultsCall results(conversation);
    execute.send(conversation.next({1}));
    ASSERT_TRUE(results.next());
    bool closed = false;
    EXPECT_TRUE(close_session(route.tail(), "closing", 1, &closed).ok());
    EXPECT_TRUE(closed);
    EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_TRUE(close_session(route.tail(), "closing", 1, &closed).ok());
    EXPECT_FALSE(closed);
    EXPECT_EQ(route.tail().status().slots_free(), 2u);
}

}  // namespace dgr

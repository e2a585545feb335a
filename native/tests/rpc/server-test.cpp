// What a worker is to its operators: health, reflection, status, listening, draining.

#include "rpc/route.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>

namespace dgr {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A call by its name alone, as a tool makes it that has no generated code.
static grpc::Status call(int port, const std::string & method, const std::string & request, std::string & response) {
    grpc::GenericStub stub(connect_to(port));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    auto stream = stub.PrepareCall(&context, method, &queue);
    void * tag = nullptr;
    bool ok = false;
    auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
    stream->StartCall(nullptr);
    wait();
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    wait();
    grpc::ByteBuffer buffer;
    stream->Read(&buffer, nullptr);
    if (wait()) {
        std::vector<grpc::Slice> slices;
        buffer.Dump(&slices);
        for (const grpc::Slice & part : slices) {
            response.append(reinterpret_cast<const char *>(part.begin()), part.size());
        }
    }
    stream->WritesDone(nullptr);
    wait();
    grpc::Status status;
    stream->Finish(&status, nullptr);
    wait();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return status;
}

TEST(Server, HealthSaysServing) {
    Route route({0, 4});
    std::string response;
    EXPECT_TRUE(call(route.head().port, "/grpc.health.v1.Health/Check", "", response).ok());
    EXPECT_EQ(response, std::string("\x08\x01"));  // status: SERVING
}

TEST(Server, HealthKnowsTheRangeByName) {
    Route route({0, 2, 4});
    const std::string name = "dgr.shard.v1.Shard/2-4";
    const std::string request = "\x0a" + std::string(1, static_cast<char>(name.size())) + name;
    std::string response;
    EXPECT_TRUE(call(route.tail().port, "/grpc.health.v1.Health/Check", request, response).ok());
    EXPECT_EQ(response, std::string("\x08\x01"));  // status: SERVING
    EXPECT_EQ(call(route.head().port, "/grpc.health.v1.Health/Check", request, response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Server, ReflectionListsTheService) {
    Route route({0, 4});
    std::string response;
    const std::string list = std::string("\x3a\x01*");  // list_services: "*"
    EXPECT_TRUE(call(route.head().port, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list, response).ok());
    EXPECT_NE(response.find("dgr.shard.v1.Shard"), std::string::npos);
}

TEST(Server, PlaintextStaysOnLoopbackUnlessItIsInsistedOn) {
    ServerOptions options;
    options.listen = "0.0.0.0:0";
    EXPECT_THROW(check_transport(options), std::invalid_argument);
    EXPECT_THROW(Worker({}, options), std::invalid_argument);
    options.listen       = "127.0.0.1:0";
    options.allowed_next = AllowList({"10.0.0.0/8"});
    EXPECT_THROW(check_transport(options), std::invalid_argument);
    options.allowed_next = AllowList({"127.0.0.0/8"});
    EXPECT_NO_THROW(check_transport(options));
    options.listen             = "0.0.0.0:0";
    options.allowed_next       = AllowList({"10.0.0.0/8"});
    options.insecure_plaintext = true;
    EXPECT_NO_THROW(Worker({}, options));
    options.listen = "nowhere";
    EXPECT_THROW(check_transport(options), std::invalid_argument);
}

TEST(Server, APortThatIsTakenIsRefused) {
    Route route({0, 4});
    ServerOptions options;
    options.artifact_digest = ARTIFACT;
    options.listen          = address_of(route.head().port);
    ShardServer server(std::make_unique<FakeEngine>(FakeSettings(), std::make_shared<FakeEngine::Knobs>()), options);
    EXPECT_THROW(server.start(), std::runtime_error);
}

TEST(Server, ADigestThatIsNoneIsRefused) {
    ServerOptions options;
    options.artifact_digest = "not a digest";
    EXPECT_THROW(ShardServer(std::make_unique<FakeEngine>(FakeSettings(), std::make_shared<FakeEngine::Knobs>()), options),
        std::invalid_argument);
}

TEST(Server, StatusCountsWhatHappened) {
    Route route({0, 4});
    Conversation conversation(route, "counted");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2, 3}));
    ASSERT_EQ(execute.executed(), 0);
    const wire::StatusResponse status = route.head().status();
    EXPECT_EQ(status.instance(), route.head().about.instance());
    EXPECT_EQ(status.slots_total(), 2u);
    EXPECT_EQ(status.slots_free(), 1u);
    EXPECT_EQ(status.executed_frames(), 1u);
    EXPECT_EQ(status.executed_rows(), 3u);
    EXPECT_EQ(status.failed_frames(), 0u);
    EXPECT_EQ(status.seam_bytes_per_token(), 32u);
    EXPECT_FALSE(status.draining());
}

TEST(Server, TextBecomesIdsAndBack) {
    Route route({0, 4}, [] {
        FakeSettings settings;
        settings.n_vocab = 256;
        return settings;
    }());
    grpc::ClientContext there;
    wire::TokenizeRequest text;
    text.set_text("hello");
    wire::TokenizeResponse ids;
    ASSERT_TRUE(route.head().stub->Tokenize(&there, text, &ids).ok());
    EXPECT_EQ(ids.token_ids_size(), 5);
    grpc::ClientContext back;
    wire::DetokenizeRequest request;
    *request.mutable_token_ids() = ids.token_ids();
    wire::DetokenizeResponse response;
    ASSERT_TRUE(route.head().stub->Detokenize(&back, request, &response).ok());
    EXPECT_EQ(response.text(), "hello");
    for (const int32_t bad : {-1, 256, INT32_MAX, INT32_MIN}) {
        grpc::ClientContext context;
        request.add_token_ids(bad);
        EXPECT_EQ(rejected_field(route.head().stub->Detokenize(&context, request, &response)), "token_ids");
        request.mutable_token_ids()->RemoveLast();
    }
}

TEST(Server, DrainFinishesTheRunningFrameAndEndsInTime) {
    Route route({0, 4});
    route.head().knobs->delay_ms = 200;
    Conversation conversation(route, "drained");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    execute.send(conversation.next({2}));
    ASSERT_TRUE(eventually([&] { return route.head().knobs->executed == 1; }));
    auto drained = std::async(std::launch::async, [&] {
        const auto start = steady_clock::now();
        route.head().server->drain({milliseconds(0), milliseconds(5000), nullptr});
        return steady_clock::now() - start;
    });
    EXPECT_TRUE(results.next());
    EXPECT_EQ(execute.executed(), 0);
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_TRUE(detail_of<wire::Failure>(status));
    EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_LT(drained.get(), milliseconds(3000));
    EXPECT_EQ(route.head().knobs->executed, 1);
}

TEST(Server, DrainWithIdleStreamsEndsAtOnce) {
    Route route({0, 2, 4});
    Conversation conversation(route, "idle");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    ASSERT_TRUE(results.next());
    const auto start = steady_clock::now();
    route.tail().server->drain({milliseconds(0), milliseconds(5000), nullptr});
    route.head().server->drain({milliseconds(0), milliseconds(5000), nullptr});
    EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// What a session that goes on while its worker drains may do, and a new one may not.
static void expect_it_goes_on(Route & route, Conversation & conversation, ExecuteCall & execute, ResultsCall & results) {
    ASSERT_TRUE(eventually([&] { return route.head().status().draining(); }));
    Conversation late(route, "late");
    EXPECT_EQ(late.open().error_code(), grpc::StatusCode::UNAVAILABLE);
    execute.send(conversation.next({2}));
    EXPECT_TRUE(results.next());
}

TEST(Server, WhileItDrainsOpenSessionsGoOnAndTheLastToCloseEndsIt) {
    Route route({0, 4});
    Conversation conversation(route, "going-on");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    ASSERT_TRUE(results.next());
    auto drained = std::async(std::launch::async, [&] {
        return route.head().server->drain({std::chrono::minutes(5), milliseconds(5000), nullptr});
    });
    expect_it_goes_on(route, conversation, execute, results);
    conversation.close();
    ASSERT_EQ(drained.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(drained.get());
}

TEST(Server, ACallThatDoesNotEndIsNotWaitedFor) {
    Route route({0, 4});
    route.head().knobs->delay_ms = 2000;
    Conversation conversation(route, "stuck");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    ASSERT_TRUE(eventually([&] { return route.head().knobs->executed == 1; }));
    const auto start = steady_clock::now();
    EXPECT_FALSE(route.head().server->drain({milliseconds(0), milliseconds(100), nullptr}));
    EXPECT_LT(steady_clock::now() - start, milliseconds(1500));
    execute.cancel();
}

TEST(Server, HurryEndsSessionsThatStillGoOn) {
    Route route({0, 4});
    Conversation conversation(route, "hurried");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    std::atomic<bool> hurry{false};
    auto drained = std::async(std::launch::async, [&] {
        return route.head().server->drain({std::chrono::minutes(5), milliseconds(5000), [&] { return hurry.load(); }});
    });
    EXPECT_EQ(drained.wait_for(milliseconds(200)), std::future_status::timeout);
    hurry = true;
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_TRUE(drained.get());
}

}  // namespace dgr

// Repeats, misses and bad frames: what a stage answers, and that it serves on afterwards.

#include "rpc/route.h"

#include "session/crc32c.h"

#include <gtest/gtest.h>

#include <functional>

namespace dgr {

TEST(Frames, ARepeatIsAnsweredAgainAndNotRunAgain) {
    Route route({0, 4});
    Conversation conversation(route, "repeat");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    const wire::ExecuteRequest first = conversation.next({1, 2, 3}, wire::LOGITS_ALL);
    execute.send(first);
    ASSERT_EQ(execute.executed(), 0);
    const auto once = results.next();
    execute.send(first);
    EXPECT_EQ(execute.executed(), 0);
    const auto twice = results.next();
    ASSERT_TRUE(once && twice);
    EXPECT_EQ(once->SerializeAsString(), twice->SerializeAsString());
    EXPECT_EQ(route.head().knobs->executed, 1);

    execute.send(conversation.next({4}));
    EXPECT_EQ(execute.executed(), 1);
}

TEST(Frames, AReleasedFrameIsOutOfRange) {
    Route route({0, 2, 4});
    Conversation conversation(route, "released");
    ASSERT_TRUE(conversation.open().ok());
    const wire::ExecuteRequest first = conversation.next({1, 2});
    {
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        execute.send(first);
        ASSERT_TRUE(results.next());
        execute.send(conversation.next({3}));
        ASSERT_TRUE(results.next());
        execute.send_all_done();
        ASSERT_TRUE(execute.end().ok());  // the tail has acknowledged both
    }
    ExecuteCall execute(conversation);
    execute.send(first);
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST(Frames, OtherContentUnderAnExecutedSequenceLosesTheEpoch) {
    Route route({0, 4});
    Conversation conversation(route, "conflict");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    Conversation other = conversation;
    execute.send(conversation.next({1, 2, 3}));
    ASSERT_EQ(execute.executed(), 0);
    execute.send(other.next({1, 2, 4}));
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
    const auto failure = detail_of<wire::Failure>(status);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->epoch(), 1u);
    EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(route.head().status().slots_free(), 2u);

    ExecuteCall gone(conversation);
    EXPECT_TRUE(detail_of<wire::CacheMiss>(gone.end()));
}

TEST(Frames, AFrameThatTheCacheDoesNotExpectIsTiedToWhatIsHeld) {
    Route route({0, 4});
    Conversation conversation(route, "miss");
    ASSERT_TRUE(conversation.open().ok());
    {
        ExecuteCall execute(conversation);
        execute.send(conversation.next({1, 2, 3}));
        ASSERT_EQ(execute.executed(), 0);
    }
    const Conversation held = conversation;
    const std::vector<std::function<void(wire::Frame &)>> spoils = {
        [](auto & f) { f.set_sequence(f.sequence() + 1); },
        [](auto & f) { f.set_first_position(0); },
        [](auto & f) { f.set_prefix_hash_before(std::string(32, 'x')); },
        [](auto & f) { f.set_prefix_hash_after(std::string(32, 'x')); },
        [](auto & f) { f.set_token_ids(0, 9); },
    };
    for (size_t i = 0; i < spoils.size(); ++i) {
        Conversation attempt = held;
        ExecuteCall execute(attempt);
        wire::ExecuteRequest request = attempt.next({4, 5});
        spoils[i](*request.mutable_frame());
        execute.send(request);
        const grpc::Status status = execute.end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << i;
        const auto miss = detail_of<wire::CacheMiss>(status);
        ASSERT_TRUE(miss) << i;
        EXPECT_EQ(miss->held_epoch(), 1u);
        EXPECT_EQ(miss->held_sequence(), 1u);
        EXPECT_EQ(miss->held_position(), 3u);
        EXPECT_EQ(miss->held_prefix_hash(), as_bytes(held.prefix));
    }
    ExecuteCall execute(conversation);
    execute.send(conversation.next({4, 5}));
    EXPECT_EQ(execute.executed(), 1);
    EXPECT_EQ(route.head().knobs->executed, 2);
}

TEST(Frames, EachBadFieldIsNamedAndTheWorkerServesOn) {
    Route route({0, 4});
    Conversation conversation(route, "bad");
    ASSERT_TRUE(conversation.open().ok());
    const std::vector<std::pair<std::string, std::function<void(wire::ExecuteRequest &)>>> spoils = {
        {"frame.token_ids", [](auto & r) { r.mutable_frame()->clear_token_ids(); }},
        {"frame.token_ids", [](auto & r) { r.mutable_frame()->mutable_token_ids()->Resize(5, 1); }},
        {"frame.token_ids", [](auto & r) { r.mutable_frame()->set_token_ids(0, 32); }},
        {"frame.token_ids", [](auto & r) { r.mutable_frame()->set_token_ids(0, -1); }},
        {"frame.want_logits", [](auto & r) { r.mutable_frame()->set_want_logits(static_cast<wire::Logits>(9)); }},
        {"frame.boundary", [](auto & r) { r.mutable_frame()->mutable_boundary(); }},
        {"frame.prefix_hash_before", [](auto & r) { r.mutable_frame()->set_prefix_hash_before("short"); }},
        {"frame.prefix_hash_after", [](auto & r) { r.mutable_frame()->clear_prefix_hash_after(); }},
        {"epoch", [](auto & r) { r.set_epoch(2); }},
        {"epoch", [](auto & r) { r.set_session("other"); }},
        {"body", [](auto & r) { r.clear_body(); }},
        {"body", [](auto & r) { r.mutable_hello()->set_key("again"); }},
    };
    for (const auto & [field, spoil] : spoils) {
        Conversation attempt = conversation;
        ExecuteCall execute(attempt);
        wire::ExecuteRequest request = attempt.next({1, 2});
        spoil(request);
        execute.send(request);
        const grpc::Status status = execute.end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
        EXPECT_EQ(rejected_field(status), field);
    }
    EXPECT_EQ(route.head().status().rejected_frames(), spoils.size());
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2}));
    EXPECT_EQ(execute.executed(), 0);
    EXPECT_EQ(route.head().knobs->executed, 1);
}

// A frame for the tail, as its predecessor would send it.
static wire::ExecuteRequest boundary_frame(Conversation & conversation, uint32_t rows, uint32_t width) {
    wire::ExecuteRequest request = conversation.next(std::vector<int32_t>(rows, 1));
    wire::Boundary & boundary = *request.mutable_frame()->mutable_boundary();
    boundary.set_dtype(wire::DTYPE_F32);
    boundary.set_rows(rows);
    boundary.set_width(width);
    boundary.set_data(std::string(static_cast<size_t>(rows) * width * sizeof(float), '\0'));
    boundary.set_checksum(crc32c(boundary.data().data(), boundary.data().size()));
    return request;
}

static wire::ExecuteRequest hello_of_head(const Conversation & conversation) {
    wire::ExecuteRequest hello = conversation.hello();
    *hello.mutable_hello()->mutable_sender() = peer_of(conversation.route.head().about);
    return hello;
}

TEST(Frames, EachBadBoundaryFieldIsNamed) {
    Route route({0, 2, 4});
    Conversation conversation(route, "boundary");
    ASSERT_TRUE(conversation.open().ok());
    const std::vector<std::pair<std::string, std::function<void(wire::Boundary &)>>> spoils = {
        {"dtype", [](auto & b) { b.set_dtype(wire::DTYPE_UNSPECIFIED); }},
        {"rows", [](auto & b) { b.set_rows(1u << 31); }},
        {"width", [](auto & b) { b.set_width(1u << 31); }},
        {"data", [](auto & b) { b.mutable_data()->pop_back(); }},
        {"data", [](auto & b) { b.mutable_data()->push_back(0); }},
        {"checksum", [](auto & b) { b.set_checksum(1); }},
    };
    for (const auto & [field, spoil] : spoils) {
        Conversation attempt = conversation;
        ExecuteCall execute(route.tail().port, hello_of_head(attempt));
        wire::ExecuteRequest request = boundary_frame(attempt, 2, 8);
        spoil(*request.mutable_frame()->mutable_boundary());
        execute.send(request);
        EXPECT_EQ(rejected_field(execute.end()), "frame.boundary." + field);
    }
    ExecuteCall execute(route.tail().port, hello_of_head(conversation));
    execute.send(boundary_frame(conversation, 2, 8));
    EXPECT_EQ(execute.executed(), 0);
    EXPECT_EQ(route.tail().knobs->executed, 1);
}

TEST(Frames, WideFramesPassUpToExactlyTheLargest) {
    FakeSettings settings;
    settings.width    = 16384;
    settings.n_ubatch = 64;
    settings.n_ctx    = 256;
    Route route({0, 2, 4}, settings);
    for (const int rows : {63, 64, 65}) {
        Conversation conversation(route, "wide", static_cast<uint64_t>(rows));
        ASSERT_TRUE(conversation.open().ok());
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        const std::vector<std::vector<int32_t>> prompt = {std::vector<int32_t>(rows, 5)};
        if (rows <= 64) {
            EXPECT_EQ(converse(conversation, execute, &results, prompt, 1), expected(settings, prompt, 1));
        } else {
            execute.send(conversation.next(prompt[0]));
            EXPECT_EQ(rejected_field(execute.end()), "frame.token_ids");
        }
    }
}

TEST(Frames, AMessageLargerThanTheLimitEndsItsStreamOnly) {
    Route route({0, 2, 4});
    Conversation conversation(route, "huge");
    ASSERT_TRUE(conversation.open().ok());
    {
        Conversation attempt = conversation;
        ExecuteCall execute(route.tail().port, hello_of_head(attempt));
        execute.send(boundary_frame(attempt, 4, 16384));
        EXPECT_FALSE(execute.end().ok());
    }
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1}));
    EXPECT_EQ(execute.executed(), 0);
    EXPECT_TRUE(eventually([&] { return route.tail().knobs->executed == 1; }));
}

TEST(Frames, ASessionFillsToExactlyItsPositions) {
    FakeSettings settings;
    settings.n_ctx = 10;
    Route route({0, 2, 4}, settings);
    Conversation conversation(route, "full");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    const std::vector<std::vector<int32_t>> prompt = {{1, 2, 3, 4}, {1, 2, 3, 4}, {5, 6}};
    EXPECT_EQ(converse(conversation, execute, &results, prompt, 0), expected(settings, prompt, 0));
    execute.send(conversation.next({7}));
    const grpc::Status status = execute.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(rejected_field(status), "frame.token_ids");
}

}  // namespace dgr

// What stages say in the log, and what they never say.

#include "log/event-log.h"
#include "rpc/route.h"

#include <gtest/gtest.h>

#include <sstream>

namespace dgr {

class Events : public testing::Test {
protected:
    Events() { start_log({LogFormat::text, LogLevel::debug}, out); }
    ~Events() override { stop_log(); }

    // The lines of an event; stages say it from their own threads.
    std::vector<std::string> lines(const std::string & event) {
        std::vector<std::string> found;
        std::istringstream in(copy());
        for (std::string line; std::getline(in, line);) {
            if (line.find(" " + event + " ") != std::string::npos) {
                found.push_back(line);
            }
        }
        return found;
    }

    // Waits for the first of them.
    std::string line(const std::string & event) {
        EXPECT_TRUE(eventually([&] { return !lines(event).empty(); })) << copy();
        return lines(event).empty() ? "" : lines(event).front();
    }

    std::string copy() {
        const std::lock_guard<std::mutex> lock(buffer.mutex);
        return buffer.text;
    }

    struct Buffer : std::streambuf {
        int_type overflow(int_type c) override {
            const std::lock_guard<std::mutex> lock(mutex);
            text += static_cast<char>(c);
            return c;
        }
        std::streamsize xsputn(const char * from, std::streamsize n) override {
            const std::lock_guard<std::mutex> lock(mutex);
            text.append(from, static_cast<size_t>(n));
            return n;
        }
        std::mutex  mutex;
        std::string text;
    } buffer;
    std::ostream out{&buffer};
};

static void expect_all(const std::string & line, const std::vector<std::string> & parts) {
    for (const std::string & part : parts) {
        EXPECT_NE(line.find(part), std::string::npos) << part << " is not in: " << line;
    }
}

TEST_F(Events, ASessionIsToldFromItsOpeningToItsEnd) {
    Route route({0, 2, 4});
    Conversation conversation(route, "life");
    ASSERT_TRUE(conversation.open().ok());
    expect_all(line("session_opened"), {" info ", "first=2 last=4", "session=life epoch=1", "peer=ipv4:127.0.0.1:", "n_ctx="});
    expect_all(lines("session_opened").at(1), {"first=0 last=2", "next=127.0.0.1:"});
    {
        ResultsCall results(conversation);
        ExecuteCall execute(conversation);
        execute.send(conversation.next({21, 22, 23}));
        ASSERT_TRUE(results.next());
        expect_all(line("next_stage_connected"), {" debug ", "session=life", "next=127.0.0.1:"});
    }
    conversation.close();
    expect_all(line("session_closed"), {" info ", "session=life epoch=1 sequence=1 position=3", "the session was closed"});
    EXPECT_EQ(copy().find(key_of("life")), std::string::npos);
}

TEST_F(Events, ARefusedFrameIsToldByItsFieldAndNotByItsTokenIds) {
    Route route({0, 4});
    Conversation conversation(route, "bad");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    wire::ExecuteRequest request = conversation.next({1, 2});
    request.mutable_frame()->set_token_ids(1, 987654);
    execute.send(request);
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    expect_all(line("frame_refused"), {" warning ", "session=bad epoch=1", "peer=ipv4:", "sequence=0", "reason=field",
        "status=INVALID_ARGUMENT", "field=frame.token_ids", "legal=\"0 to 31\""});
    EXPECT_EQ(copy().find("987654"), std::string::npos);
}

TEST_F(Events, RefusalsBeyondAFewAreHeldBack) {
    Route route({0, 4});
    Conversation conversation(route, "many");
    ASSERT_TRUE(conversation.open().ok());
    constexpr size_t MANY = 60;
    for (size_t i = 0; i < MANY; ++i) {
        Conversation attempt = conversation;
        ExecuteCall execute(attempt);
        wire::ExecuteRequest request = attempt.next({1});
        request.set_epoch(2);
        execute.send(request);
        execute.end();
    }
    EXPECT_EQ(route.head().status().rejected_frames(), MANY);
    EXPECT_GE(lines("frame_refused").size(), 20u);
    EXPECT_LT(lines("frame_refused").size(), MANY);
    expect_all(lines("frame_refused").front(), {"reason=epoch"});
}

TEST_F(Events, RefusedOpensAndStreamsSayWhy) {
    Route route({0, 4});
    Conversation conversation(route, "known");
    wire::OpenSessionRequest request = route.open_request(0, "known", 1);
    request.set_artifact_digest(std::string(64, 'b'));
    EXPECT_FALSE(open_session(route.head(), request).ok());
    expect_all(line("session_refused"), {" warning ", "session=known epoch=1", "peer=ipv4:", "status=FAILED_PRECONDITION", "artifact_digest"});
    EXPECT_FALSE(ExecuteCall(conversation).end().ok());
    expect_all(line("stream_refused"), {"session=known", "stream=execute", "no such session here"});
    EXPECT_FALSE(ResultsCall(conversation).end().ok());
    expect_all(lines("stream_refused").at(1), {"stream=results", "no such session here"});
}

TEST_F(Events, AStrangersWordsAreCutShort) {
    Route route({0, 4});
    Conversation conversation(route, "x");
    wire::ExecuteRequest hello = conversation.hello();
    hello.set_session(std::string(3000, 'y') + "\n2026 error forged");
    EXPECT_FALSE(ExecuteCall(route.head().port, hello).end().ok());
    EXPECT_LT(line("stream_refused").size(), 1000u);
    EXPECT_EQ(copy().find("forged"), std::string::npos);
}

TEST_F(Events, AFailedCallEndsTheSessionAndNamesWhatWasNotFinite) {
    Route route({0, 4});
    Conversation conversation(route, "failing");
    ASSERT_TRUE(conversation.open().ok());
    ExecuteCall execute(conversation);
    route.head().knobs->not_finite = true;
    execute.send(conversation.next({1}));
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::INTERNAL);
    expect_all(line("not_finite"), {" error ", "session=failing epoch=1 sequence=0", "values=\"outgoing boundary\""});
    expect_all(line("session_failed"), {" warning ", "session=failing", "status=INTERNAL", "cause=\"made not finite\"",
        "failed_first=0 failed_last=4"});
}

TEST_F(Events, ALostNextStageIsNamedAndAStreamMadeAgainIsTold) {
    Route route({0, 2, 4});
    Conversation conversation(route, "lost");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    {
        ExecuteCall execute(conversation);
        execute.send(conversation.next({1}));
        ASSERT_TRUE(results.next());
        ASSERT_EQ(execute.executed(), 0);
        execute.cancel();
        execute.end();
        EXPECT_EQ(results.end().error_code(), grpc::StatusCode::ABORTED);  // the head and the tail have heard of it
    }
    EXPECT_EQ(lines("next_stage_reconnected").size(), 0u);
    ResultsCall again(conversation, conversation.sequence);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({2}));
    EXPECT_TRUE(again.next());
    expect_all(line("next_stage_reconnected"), {" info ", "session=lost"});
    route.workers[1].reset();
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::UNAVAILABLE);
    expect_all(line("next_stage_lost"), {" warning ", "first=0 last=2", "session=lost", "next=127.0.0.1:", "status="});
    expect_all(line("session_failed"), {"failed_first=2 failed_last=4"});
}

}  // namespace dgr

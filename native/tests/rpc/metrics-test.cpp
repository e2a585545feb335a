// The numbers of a stage as Prometheus reads them, and that Status says the same.

#include "rpc/exposition.h"
#include "rpc/metrics.h"
#include "rpc/route.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

namespace dgr {

// Samples by their name with labels.
static std::map<std::string, std::string> samples(const std::string & text) {
    std::map<std::string, std::string> found;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("#", 0) != 0) {
            const size_t space = line.rfind(' ');
            EXPECT_TRUE(found.emplace(line.substr(0, space), line.substr(space + 1)).second) << line;
        }
    }
    return found;
}

TEST(Exposition, FamiliesLabelsAndEscapes) {
    Exposition out;
    out.family("a_total", "counter", "Line one\nback\\slash \"quoted\".");
    out.sample({{"reason", "say \"no\"\nback\\slash"}, {"n", "1"}}, 18446744073709551615u);
    out.single("b_seconds", "gauge", "B.", as_seconds(1000001));
    EXPECT_EQ(out.text(),
        "# HELP a_total Line one\\nback\\\\slash \"quoted\".\n# TYPE a_total counter\n"
        "a_total{reason=\"say \\\"no\\\"\\nback\\\\slash\",n=\"1\"} 18446744073709551615\n"
        "# HELP b_seconds B.\n# TYPE b_seconds gauge\nb_seconds 1.000001\n");
}

TEST(Exposition, SecondsAreExact) {
    const std::map<uint64_t, std::string> known = {
        {0, "0"}, {1, "0.000001"}, {250, "0.00025"}, {1000000, "1"}, {10000000, "10"}, {1500000, "1.5"},
        {18446744073709551615u, "18446744073709.551615"}};
    for (const auto & [us, text] : known) {
        EXPECT_EQ(as_seconds(us), text);
    }
}

TEST(Histogram, BucketsHoldWhatIsBelowThemAndTheLastOneAll) {
    Histogram histogram;
    histogram.add(0);
    histogram.add(Histogram::ENDS.front());
    histogram.add(Histogram::ENDS.front() + 1);
    histogram.add(Histogram::ENDS.back() + 1);
    const Histogram::Reading reading = histogram.read();
    EXPECT_EQ(reading.up_to[0], 2u);
    EXPECT_EQ(reading.up_to[1], 3u);
    EXPECT_EQ(reading.up_to[Histogram::ENDS.size() - 1], 3u);
    EXPECT_EQ(reading.count(), 4u);
    EXPECT_EQ(reading.sum_us, 2 * Histogram::ENDS.front() + 1 + Histogram::ENDS.back() + 1);
}

TEST(Metrics, SayWhatStatusSays) {
    Route route({0, 2, 4});
    Conversation conversation(route, "counted", 7);
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    route.head().knobs->delay_ms = 2;
    execute.send(conversation.next({1, 2, 3}));
    execute.send(conversation.next({4}));
    execute.send(conversation.next({5}));
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(results.next());
    }
    wire::ExecuteRequest bad = conversation.next({6});
    bad.mutable_frame()->set_first_position(40);
    execute.send(bad);
    EXPECT_EQ(execute.end().error_code(), grpc::StatusCode::FAILED_PRECONDITION);

    const StageSnapshot now = route.head().server->snapshot();
    const auto told = samples(metrics_text(route.head().about, now));
    const auto number = [&](const std::string & name) { return std::stod(told.at(name)); };
    EXPECT_EQ(now.status.executed_frames(), 3u);
    EXPECT_EQ(now.status.executed_rows(), 5u);
    EXPECT_EQ(now.status.rejected_frames(), 1u);
    EXPECT_EQ(now.status.newest_epoch(), 7u);
    EXPECT_EQ(number("dgr_worker_frames_total"), 3);
    EXPECT_EQ(number("dgr_worker_rows_total"), 5);
    EXPECT_EQ(number("dgr_worker_refused_frames_total{reason=\"cache_miss\"}"), 1);
    EXPECT_EQ(number("dgr_worker_refused_frames_total{reason=\"field\"}"), 0);
    EXPECT_EQ(number("dgr_worker_newest_epoch"), 7);
    EXPECT_EQ(number("dgr_worker_sessions"), 1);
    EXPECT_EQ(number("dgr_worker_slots_free") + number("dgr_worker_sessions"), number("dgr_worker_slots"));
    EXPECT_EQ(told.at("dgr_worker_received_bytes_total"), std::to_string(now.status.bytes_in()));
    EXPECT_EQ(told.at("dgr_worker_sent_bytes_total"), std::to_string(now.status.bytes_out()));
    EXPECT_EQ(told.at("dgr_worker_resident_bytes"), std::to_string(now.status.resident_bytes()));
    EXPECT_GT(now.status.bytes_out(), 5u * 8 * sizeof(float));  // the boundary of five rows, and more
    EXPECT_GT(now.status.resident_bytes(), 1u << 20);
    EXPECT_EQ(number("dgr_worker_compute_seconds_count{kind=\"decode\"}"), 2);
    EXPECT_EQ(number("dgr_worker_compute_seconds_count{kind=\"prefill\"}"), 1);
    EXPECT_EQ(number("dgr_worker_compute_seconds_bucket{kind=\"decode\",le=\"0.001\"}"), 0);  // each took 2 ms
    EXPECT_EQ(number("dgr_worker_compute_seconds_bucket{kind=\"decode\",le=\"+Inf\"}"), 2);
    EXPECT_EQ(now.compute[0].sum_us + now.compute[1].sum_us, now.status.busy_us());
    EXPECT_EQ(now.wait[0].sum_us + now.wait[1].sum_us, now.status.waited_us());
    EXPECT_GE(now.status.busy_us(), 6000u);
    EXPECT_GE(now.status.waited_us(), 2000u);  // the second and third frame came while the first was computed
}

TEST(Metrics, EveryStageCountsWhatItTakesAndSends) {
    Route route({0, 2, 4});
    Conversation conversation(route, "bytes");
    ASSERT_TRUE(conversation.open().ok());
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    execute.send(conversation.next({1, 2}, wire::LOGITS_ALL));
    const auto result = results.next();
    ASSERT_TRUE(result);
    ASSERT_EQ(execute.executed(), 0);
    const wire::StatusResponse head = route.head().status(), tail = route.tail().status();
    EXPECT_EQ(head.bytes_out(), tail.bytes_in());
    EXPECT_GT(tail.bytes_out(), result->logits().size());
    EXPECT_LT(tail.bytes_out(), result->logits().size() + 200);
}

TEST(Metrics, TheIdentityIsThatOfDescribe) {
    Route route({0, 2, 4});
    const std::string text = metrics_text(route.tail().about, route.tail().server->snapshot());
    const size_t at = text.find("dgr_worker_info{");
    ASSERT_NE(at, std::string::npos);
    const std::string line = text.substr(at, text.find('\n', at) - at);
    for (const char * label : {"first=\"2\"", "last=\"4\"", "architecture=\"fake\"", "backend=\"CPU\""}) {
        EXPECT_NE(line.find(label), std::string::npos) << line;
    }
    EXPECT_NE(line.find("worker=\"" + route.tail().about.instance() + "\""), std::string::npos) << line;
    EXPECT_NE(line.find("lane_digest=\"" + route.tail().about.build().lane_digest() + "\""), std::string::npos) << line;
    EXPECT_EQ(line.substr(line.size() - 3), "} 1");
}

}  // namespace dgr

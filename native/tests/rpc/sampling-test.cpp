// How tokens are chosen, as asked for at open: who takes it, what is refused, and that it ends with its session.

#include "rpc/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace dgr {

namespace {

const std::vector<std::vector<int32_t>> PROMPT = {{1, 2, 3, 4}, {5, 6}};

using Spoil = std::function<void(wire::Sampling &)>;

struct Case {
    std::string field;
    Spoil       spoil;
};

// Opens every stage, the tail with this sampling where there is one.
void open_all(Conversation & conversation, const std::optional<wire::Sampling> & sampling) {
    const Route & route = conversation.route;
    for (size_t stage = route.workers.size(); stage-- > 0;) {
        wire::OpenSessionRequest request = route.open_request(stage, conversation.id, conversation.epoch);
        if (sampling && stage + 1 == route.workers.size()) {
            *request.mutable_sampling() = *sampling;
        }
        ASSERT_TRUE(open_session(*route.workers[stage], request).ok());
    }
}

std::vector<int32_t> tokens_of(Route & route, const std::string & id, uint64_t epoch, const std::optional<wire::Sampling> & sampling) {
    Conversation conversation(route, id, epoch);
    open_all(conversation, sampling);
    ResultsCall results(conversation);
    ExecuteCall execute(conversation);
    return converse(conversation, execute, &results, PROMPT, 4).tokens;
}

wire::Sampling sampled(uint64_t seed) {
    wire::Sampling sampling;
    sampling.set_temperature(0.7f);
    sampling.set_seed(seed);
    return sampling;
}

}  // namespace

TEST(Sampling, EachValueOutsideItsRangeIsNamedWithTheRange) {
    Route route({0, 2, 4});
    const float nan = std::nanf("");
    const float inf = HUGE_VALF;
    std::vector<Case> cases = {
        {"sampling.top_k", [](auto & s) { s.set_top_k(1048577); }},
        {"sampling.top_k", [](auto & s) { s.set_top_k(UINT32_MAX); }},
        {"sampling.penalty_window", [](auto & s) { s.set_penalty_window(1048577); }},
        {"sampling.penalty_window", [](auto & s) { s.set_repetition_penalty(1.1f); }},
        {"sampling.penalty_window", [](auto & s) { s.set_frequency_penalty(0.1f); }},
        {"sampling.penalty_window", [](auto & s) { s.set_presence_penalty(-0.1f); }},
    };
    for (const float value : {-0.1f, 0.0009f, 100.1f, nan, inf, -inf}) {
        cases.push_back({"sampling.temperature", [value](auto & s) { s.set_temperature(value); }});
    }
    for (const float value : {0.0f, -0.1f, 1.0001f, nan, inf, -inf}) {
        cases.push_back({"sampling.top_p", [value](auto & s) { s.set_top_p(value); }});
    }
    for (const float value : {-0.1f, 1.0001f, nan, inf, -inf}) {
        cases.push_back({"sampling.min_p", [value](auto & s) { s.set_min_p(value); }});
    }
    for (const float value : {0.0f, 0.09f, -1.0f, 10.1f, nan, inf, -inf}) {
        cases.push_back({"sampling.repetition_penalty", [value](auto & s) { s.set_repetition_penalty(value); }});
    }
    for (const float value : {-100.1f, 100.1f, nan, inf, -inf}) {
        cases.push_back({"sampling.frequency_penalty", [value](auto & s) { s.set_frequency_penalty(value); }});
        cases.push_back({"sampling.presence_penalty", [value](auto & s) { s.set_presence_penalty(value); }});
    }
    for (size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(cases[i].field + ", case " + std::to_string(i));
        wire::OpenSessionRequest request = route.open_request(1, "bad", 1);
        *request.mutable_sampling() = sampled(1);
        cases[i].spoil(*request.mutable_sampling());
        const grpc::Status status = open_session(route.tail(), request);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
        EXPECT_EQ(rejected_field(status), cases[i].field);
        EXPECT_NE(detail_of<wire::Rejected>(status)->legal().find(" to "), std::string::npos);
    }
    EXPECT_EQ(route.tail().status().slots_free(), 2u);
}

TEST(Sampling, TheTailSaysWhatItWillDoWithWhatWasAbsentFilledIn) {
    Route route({0, 2, 4});
    wire::OpenSessionRequest request = route.open_request(1, "echo", 1);
    grpc::ClientContext context, greedy;
    wire::OpenSessionResponse response;
    *request.mutable_sampling() = sampled(UINT64_MAX);
    ASSERT_TRUE(route.tail().stub->OpenSession(&context, request, &response).ok());
    wire::Sampling expected = sampled(UINT64_MAX);
    expected.set_top_p(1);
    expected.set_repetition_penalty(1);
    EXPECT_EQ(response.sampling().SerializeAsString(), expected.SerializeAsString());

    request = route.open_request(1, "greedy", 1);
    ASSERT_TRUE(route.tail().stub->OpenSession(&greedy, request, &response).ok());
    EXPECT_FALSE(response.has_sampling());
}

TEST(Sampling, TheEdgesOfTheRangesAreLegal) {
    Route route({0, 4});
    const std::vector<Spoil> cases = {
        [](auto & s) { s.set_temperature(0); },
        [](auto & s) { s.set_temperature(0.001f); },
        [](auto & s) { s.set_temperature(100); },
        [](auto & s) { s.set_top_k(1048576); },
        [](auto & s) { s.set_top_p(1e-30f); },
        [](auto & s) { s.set_top_p(1); },
        [](auto & s) { s.set_min_p(1); },
        [](auto & s) { s.set_penalty_window(1048576); },
        [](auto & s) { s.set_penalty_window(1); s.set_repetition_penalty(0.1f); },
        [](auto & s) { s.set_penalty_window(1); s.set_repetition_penalty(10); },
        [](auto & s) { s.set_penalty_window(1); s.set_frequency_penalty(-100); s.set_presence_penalty(100); },
    };
    uint64_t epoch = 0;
    for (const Spoil & spoil : cases) {
        wire::OpenSessionRequest request = route.open_request(0, "edges", ++epoch);
        *request.mutable_sampling() = sampled(0);
        spoil(*request.mutable_sampling());
        EXPECT_TRUE(open_session(route.tail(), request).ok()) << request.sampling().ShortDebugString();
    }
}

TEST(Sampling, OnlyTheTailTakesIt) {
    Route route({0, 1, 2, 4});
    for (const size_t stage : {0, 1}) {
        wire::OpenSessionRequest request = route.open_request(stage, "early", 1);
        request.mutable_sampling();
        const grpc::Status status = open_session(*route.workers[stage], request);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
        EXPECT_EQ(rejected_field(status), "sampling");
        EXPECT_EQ(route.workers[stage]->status().slots_free(), 2u);
    }
}

TEST(Sampling, ItIsOfOneEpochAndLeavesNothingInTheSlot) {
    FakeSettings settings;
    settings.slots = 1;
    Route route({0, 2, 4}, settings);
    const std::vector<int32_t> greedy = expected(settings, PROMPT, 4).tokens;
    const std::vector<int32_t> one = tokens_of(route, "one", 1, sampled(1));
    EXPECT_NE(one, greedy);
    EXPECT_EQ(tokens_of(route, "one", 2, std::nullopt), greedy);
    EXPECT_EQ(tokens_of(route, "one", 3, sampled(1)), one);
    EXPECT_NE(tokens_of(route, "one", 4, sampled(2)), one);
}

}  // namespace dgr

// Frames that break a rule: refused with the field's name, and the slot goes on as if nothing had come.

#include "parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace dgr::testing {

namespace {

const std::vector<uint32_t> CUTS = { 2, 40 };

std::string refused_field(ShardEngine & engine, const EngineFrame & frame) {
    try {
        engine.execute(frame);
    } catch (const InvalidFrame & error) {
        EXPECT_STRNE(error.what(), "");
        return error.field;
    } catch (const EngineFailure &) {
        return "failure";
    }
    return "accepted";
}

}  // namespace

class Refusal : public ::testing::Test {
protected:
    virtual LlamaEngineParams params() const { return default_params(tiny_v4()); }

    void SetUp() override {
        chain = std::make_unique<Chain>(params(), CUTS);
        for (size_t i = 0; i < 3; i++) {
            ASSERT_EQ(chain->stage(i).open(512), 0);
        }
        ids   = make_prompt(65);
        width = chain->stage(0).describe().boundary.width;
        boundary.assign(size_t(65) * width, 0.25F);
    }

    EngineFrame good(bool head) {
        EngineFrame frame;
        frame.n_rows    = 5;
        frame.token_ids = ids.data();
        frame.boundary  = head ? nullptr : boundary.data();
        return frame;
    }

    std::unique_ptr<Chain> chain;
    std::vector<int32_t>   ids;
    std::vector<float>     boundary;
    uint32_t               width = 0;
};

TEST_F(Refusal, EachRuleNamesItsField) {
    struct Case {
        const char *                       field;
        std::function<void(EngineFrame &)> spoil;
    };
    const std::vector<Case> cases = {
        { "rows", [](EngineFrame & f) { f.n_rows = 0; } },
        { "rows", [](EngineFrame & f) { f.n_rows = 65; } },
        { "rows", [](EngineFrame & f) { f.n_rows = UINT32_MAX; } },
        { "first_position", [](EngineFrame & f) { f.first_position = 5; } },
        { "first_position", [](EngineFrame & f) { f.first_position = UINT32_MAX; } },
        { "token_ids", [](EngineFrame & f) { f.token_ids = nullptr; } },
        { "token_ids", [this](EngineFrame &) { ids[4] = -1; } },
        { "token_ids", [this](EngineFrame &) { ids[0] = 384; } },
        { "token_ids", [this](EngineFrame &) { ids[2] = INT32_MIN; } },
        { "slot", [](EngineFrame & f) { f.slot = 1; } },
        { "slot", [](EngineFrame & f) { f.slot = UINT32_MAX; } },
    };
    const std::vector<int32_t> good_ids = ids;
    for (size_t stage = 0; stage < 3; stage++) {
        for (size_t i = 0; i < cases.size(); i++) {
            SCOPED_TRACE("stage " + std::to_string(stage) + ", case " + std::to_string(i));
            ids               = good_ids;
            EngineFrame frame = good(stage == 0);
            cases[i].spoil(frame);
            EXPECT_EQ(refused_field(chain->stage(stage), frame), cases[i].field);
            ids = good_ids;
            EXPECT_EQ(chain->stage(stage).position(0), 0U);
        }
        EXPECT_EQ(refused_field(chain->stage(stage), good(stage == 0)), "accepted");
        EXPECT_EQ(chain->stage(stage).position(0), 5U);
    }
}

TEST_F(Refusal, OnlyTheHeadGoesWithoutABoundary) {
    EXPECT_EQ(refused_field(chain->stage(0), good(false)), "boundary");
    EXPECT_EQ(refused_field(chain->stage(1), good(true)), "boundary");
    EXPECT_EQ(refused_field(chain->stage(2), good(true)), "boundary");
}

TEST_F(Refusal, OnlyTheTailGivesTokensAndLogits) {
    for (size_t stage = 0; stage < 2; stage++) {
        EngineFrame frame = good(stage == 0);
        frame.want_token  = true;
        EXPECT_EQ(refused_field(chain->stage(stage), frame), "want_token");
        frame             = good(stage == 0);
        frame.want_logits = LogitsWanted::last;
        EXPECT_EQ(refused_field(chain->stage(stage), frame), "want_logits");
    }
}

TEST_F(Refusal, BoundaryValuesThatAreNotFiniteOrPastTheLimit) {
    using Limits = std::numeric_limits<float>;
    for (const float bad : { Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::max(), 0x1.1p100F,
                             -0x1p101F }) {
        for (const size_t at : { size_t(0), size_t(5) * width - 1 }) {
            boundary[at] = bad;
            EXPECT_EQ(refused_field(chain->stage(1), good(false)), "boundary");
            boundary[at] = 0.25F;
        }
    }
    boundary[7]                 = -0x1p100F;
    boundary[size_t(5) * width] = Limits::quiet_NaN();  // past the frame
    EXPECT_EQ(refused_field(chain->stage(1), good(false)), "accepted");
}

TEST_F(Refusal, LastAndAllLogitsAgreeOnTheToken) {
    EngineFrame frame   = good(false);
    frame.want_token    = true;
    const auto quiet    = chain->stage(2).execute(frame);
    EXPECT_EQ(quiet.logits_rows, 0U);
    chain->stage(2).close(0);
    ASSERT_EQ(chain->stage(2).open(1), 0);
    frame.want_logits = LogitsWanted::last;
    const auto last   = chain->stage(2).execute(frame);
    EXPECT_EQ(last.logits_rows, 1U);
    EXPECT_EQ(last.token, quiet.token);
    EXPECT_EQ(last.logits[static_cast<size_t>(last.token)], *std::max_element(last.logits.begin(), last.logits.end()));
}

// Where NaN can be caught after computing, it is let come about.
class RandomFrames : public Refusal {
protected:
    LlamaEngineParams params() const override {
        LlamaEngineParams params = Refusal::params();
        if (on_cpu()) {
            params.boundary_limit = std::numeric_limits<float>::max();
        }
        return params;
    }
};

// Anything at all comes back as an answer, InvalidFrame or EngineFailure; the process lives and a clean session
// afterwards gives the right bytes.
TEST_F(RandomFrames, NeverHurt) {
    std::mt19937 random(20261201);
    const auto   pick = [&](auto... values) {
        const std::vector<double> all = { static_cast<double>(values)... };
        return all[random() % all.size()];
    };
    for (int i = 0; i < 400; i++) {
        const size_t  stage  = random() % 3;
        ShardEngine & engine = chain->stage(stage);
        EngineFrame   frame;
        frame.slot           = random() % 20 == 0 ? 1 : 0;
        frame.n_rows         = static_cast<uint32_t>(random() % 8 == 0 ? pick(0, 64, 65, 1e9) : 1 + random() % 8);
        frame.first_position = random() % 8 == 0 ? random() : engine.position(0);
        frame.token_ids      = random() % 16 == 0 ? nullptr : ids.data();
        frame.boundary       = (stage == 0) != (random() % 16 == 0) ? nullptr : boundary.data();
        frame.want_token     = stage == 2 && random() % 2 == 0;
        ids[random() % 8]    = static_cast<int32_t>(random() % 10 == 0 ? pick(-1, 384, 2147483647.0) : random() % 384);
        if (random() % 2 == 0) {
            const double value = pick(0, 1, -1, 1e-40, 1e20, -1e30, 3e38, INFINITY, NAN);
            boundary[random() % (size_t(8) * width)] = static_cast<float>(value);
        } else {
            const double value = pick(0, 1e-45, 3.4e38, -3.4e38, 65504, 1e10);
            std::fill(boundary.begin(), boundary.end(), static_cast<float>(value));
        }
        const std::string result = refused_field(engine, frame);
        if (result == "failure" || engine.position(0) > 400) {
            engine.close(0);
            ASSERT_EQ(engine.open(512), 0) << "a failed slot comes back";
        }
        for (int32_t & id : ids) {
            id = std::min(std::max(id, 0), 383);
        }
    }

    for (size_t stage = 0; stage < 3; stage++) {
        chain->stage(stage).close(0);
    }
    const auto prompt = make_prompt(130);
    const auto & alone  = solo_trace(default_params(tiny_v4()), CUTS, prompt, 2);
    EXPECT_TRUE(same_bytes(alone.logits, chain->generate(prompt, 2).logits));
}

}  // namespace dgr::testing

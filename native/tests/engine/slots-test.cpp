// Slots: each is a session of its own, clean at open, exactly as long as promised.

#include "parity.h"

#include "upstream-log.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace dgr::testing {

namespace {

LlamaEngineParams with_slots(std::vector<SlotClass> classes, const std::string & model = tiny_v4()) {
    LlamaEngineParams params = default_params(model);
    params.slot_classes      = std::move(classes);
    return params;
}

struct Running {
    std::unique_ptr<Chain::Session> session;
    std::vector<int32_t>            prompt;
    size_t                          done = 0;
    Trace                           trace;
};

// One step of a session: the next frame of its prompt, else one decode step.
bool advance(Running & run, size_t n_ubatch, size_t n_decode) {
    EngineOutput output;
    if (run.done < run.prompt.size()) {
        const size_t end = std::min(run.done + n_ubatch, run.prompt.size());
        output           = run.session->execute({ run.prompt.data() + run.done, run.prompt.data() + end });
        run.done         = end;
        if (run.done == run.prompt.size()) {
            run.trace.tokens.push_back(output.token);
        }
    } else if (run.trace.tokens.size() <= n_decode) {
        output = run.session->execute({ run.trace.tokens.back() });
        run.trace.tokens.push_back(output.token);
    } else {
        return false;
    }
    run.trace.logits.insert(run.trace.logits.end(), output.logits.begin(), output.logits.end());
    return true;
}

void expect_interleaved_sessions_equal_solo(const std::string & model, const std::vector<uint32_t> & cuts) {
    constexpr size_t N_DECODE = 5;
    Chain            chain(with_slots({ { 4, 256 } }, model), cuts);

    std::vector<Running> running(4);
    for (size_t i = 0; i < running.size(); i++) {
        running[i].prompt  = make_prompt(100 + 17 * i, static_cast<uint32_t>(i + 1));
        running[i].session = std::make_unique<Chain::Session>(chain, 256);
    }

    std::mt19937          random(7);
    std::vector<Running *> left;
    for (Running & run : running) {
        left.push_back(&run);
    }
    while (!left.empty()) {
        const size_t i = random() % left.size();
        if (!advance(*left[i], 64, N_DECODE)) {
            left.erase(left.begin() + static_cast<long>(i));
        }
    }

    const LlamaEngineParams solo = with_slots({ { 1, 256 } }, model);
    for (const Running & run : running) {
        const Trace & alone = solo_trace(solo, cuts, run.prompt, N_DECODE);
        EXPECT_TRUE(same_bytes(alone.logits, run.trace.logits)) << run.prompt.size();
        EXPECT_EQ(alone.tokens, run.trace.tokens);
    }
}

void expect_no_trace_of_earlier_sessions(const std::string & model, const std::vector<uint32_t> & cuts) {
    const LlamaEngineParams    params = with_slots({ { 1, 512 } }, model);
    const std::vector<int32_t> prompt = make_prompt(130);
    Chain                      chain(params, cuts);

    const Trace first = chain.generate(prompt, 3);
    chain.generate(make_prompt(500, 9), 12);  // to the last position
    chain.generate(make_prompt(3, 4), 0);
    EXPECT_TRUE(same_bytes(first.logits, chain.generate(prompt, 3).logits));
    EXPECT_TRUE(same_bytes(first.logits, solo_trace(params, cuts, prompt, 3).logits));
}

}  // namespace

TEST(Slots, SessionsInterleavedAtRandomEqualTheirSoloRuns) {
    expect_interleaved_sessions_equal_solo(tiny_v4(), { 2, 21 });
    expect_interleaved_sessions_equal_solo(tiny_gemma3(), { 5, 6 });
}

TEST(Slots, WhatUsedASlotBeforeLeavesNoTrace) {
    expect_no_trace_of_earlier_sessions(tiny_v4(), { 2, 21 });
    expect_no_trace_of_earlier_sessions(tiny_gemma3(), { 5, 6 });
}

TEST(Slots, ASlotHoldsExactlyItsContextAndNotOneMore) {
    for (const uint32_t n_ctx : { 1U, 100U, 256U, 300U }) {
        SCOPED_TRACE(n_ctx);
        Chain          chain(with_slots({ { 2, n_ctx } }), { 21 });
        Chain::Session session(chain, n_ctx);
        for (uint32_t done = 0; done < n_ctx;) {
            const uint32_t n = std::min(64U, n_ctx - done);
            ASSERT_EQ(session.execute(make_prompt(n, done)).logits_rows, n);
            done += n;
        }
        EXPECT_THROW(session.execute({ 5 }), InvalidFrame);
        EXPECT_EQ(chain.stage(0).position(static_cast<uint32_t>(session.slots()[0])), n_ctx);
    }
}

TEST(Slots, AFrameThatPassesTheEndIsRefusedWhole) {
    Chain          chain(with_slots({ { 1, 100 } }), {});
    Chain::Session session(chain, 100);
    session.execute(make_prompt(64));
    EXPECT_THROW(session.execute(make_prompt(37)), InvalidFrame);
    EXPECT_EQ(session.execute(make_prompt(36)).logits_rows, 36U);
}

TEST(Slots, OpenTakesTheSmallestClassThatFits) {
    const auto engine = make_llama_engine(with_slots({ { 1, 512 }, { 2, 128 } }));
    EXPECT_EQ(engine->largest_free(), 512U);

    const int32_t small = engine->open(100);
    ASSERT_GE(small, 0);
    EXPECT_EQ(engine->slot_n_ctx(static_cast<uint32_t>(small)), 128U);
    const int32_t large = engine->open(129);
    ASSERT_GE(large, 0);
    EXPECT_EQ(engine->slot_n_ctx(static_cast<uint32_t>(large)), 512U);
    EXPECT_EQ(engine->largest_free(), 128U);
    EXPECT_EQ(engine->open(129), -1);
    EXPECT_GE(engine->open(1), 0);
    EXPECT_EQ(engine->largest_free(), 0U);
    EXPECT_EQ(engine->open(1), -1);

    engine->close(static_cast<uint32_t>(large));
    EXPECT_EQ(engine->largest_free(), 512U);
}

TEST(Slots, ClassesOfOneEngineGiveTheSameBytes) {
    const std::vector<int32_t> prompt = make_prompt(130);
    LlamaEngineParams          solo   = default_params(tiny_v4());
    Chain                      chain(with_slots({ { 2, 256 }, { 1, 512 } }), { 21 });

    Chain::Session first(chain, 256);
    Chain::Session second(chain, 512);
    solo.slot_classes = { { 1, 256 } };
    EXPECT_TRUE(same_bytes(solo_trace(solo, { 21 }, prompt, 3).logits, first.generate(prompt, 3).logits));
    solo.slot_classes = { { 1, 512 } };
    EXPECT_TRUE(same_bytes(solo_trace(solo, { 21 }, prompt, 3).logits, second.generate(prompt, 3).logits));
}

TEST(Slots, CloseIsIdempotentAndAThousandSessionsLeakNothing) {
    const auto engine = make_llama_engine(with_slots({ { 2, 64 } }));
    for (int i = 0; i < 1000; i++) {
        const int32_t slot = engine->open(64);
        ASSERT_GE(slot, 0);
        engine->close(static_cast<uint32_t>(slot));
        engine->close(static_cast<uint32_t>(slot));
    }
    EXPECT_GE(engine->open(64), 0);
    EXPECT_GE(engine->open(64), 0);
    EXPECT_EQ(engine->open(64), -1);
}

// Upstream says at the end whether its compute buffers grew past what it had reserved.
TEST(Slots, FullSlotsNeedNoMemoryBeyondWhatWasReserved) {
    std::vector<std::string> said;
    set_upstream_sink([&](UpstreamLevel, const std::string & line) { said.push_back(line); });
    for (const uint32_t slots : { 1U, 3U }) {
        Chain chain(with_slots({ { slots, 300 } }), { 2, 21 });

        std::vector<std::unique_ptr<Chain::Session>> sessions;
        for (uint32_t i = 0; i < slots; i++) {
            sessions.push_back(std::make_unique<Chain::Session>(chain, 300));
            sessions.back()->generate(make_prompt(298), 2);
        }
        sessions.clear();
    }
    set_upstream_sink({});
    for (const std::string & line : said) {
        EXPECT_EQ(line.find("does not match expectation"), std::string::npos) << line;
    }
}

// Values near the largest float overflow inside and leave NaN in the cells. For the CPU only: see finite.h.
TEST(Overflow, AFailedSlotIsCleanForTheNextAndItsNeighbourGoesOn) {
    LlamaEngineParams params = with_slots({ { 2, 256 } });
    params.boundary_limit    = std::numeric_limits<float>::max();
    Chain      chain(params, { 21 });
    const auto prompt = make_prompt(20);  // shorter than what failed: its cells stay in view
    const auto ids    = make_prompt(60);

    LlamaEngineParams solo = params;
    solo.slot_classes      = { { 1, 256 } };
    const Trace & alone    = solo_trace(solo, { 21 }, prompt, 2);

    auto          neighbour = std::make_unique<Chain::Session>(chain, 256);
    Trace         other     = neighbour->generate(prompt, 0);
    ShardEngine & tail      = chain.stage(1);
    const auto    bad       = static_cast<uint32_t>(tail.open(256));

    std::vector<float> boundary(size_t(60) * tail.describe().boundary.width, std::numeric_limits<float>::max());
    EngineFrame        frame;
    frame.slot      = bad;
    frame.n_rows    = 60;
    frame.token_ids = ids.data();
    frame.boundary  = boundary.data();
    EXPECT_THROW(tail.execute(frame), EngineFailure);
    EXPECT_EQ(tail.position(bad), 0U);
    EXPECT_THROW(tail.execute(frame), EngineFailure) << "a failed slot must be closed first";
    tail.close(bad);

    const int32_t token = other.tokens.back();
    const auto    step  = neighbour->execute({ token });
    EXPECT_EQ(step.token, alone.tokens[1]);
    neighbour.reset();

    Chain::Session first(chain, 256);
    Chain::Session second(chain, 256);
    EXPECT_TRUE(same_bytes(alone.logits, first.generate(prompt, 2).logits));
    EXPECT_TRUE(same_bytes(alone.logits, second.generate(prompt, 2).logits));
}

}  // namespace dgr::testing

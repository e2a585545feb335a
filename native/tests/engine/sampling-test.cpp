// Sessions that sample, on real engines: the seed decides, not the cut, the frames or what the slot was used for.

#include "parity.h"

#include <gtest/gtest.h>

namespace dgr::testing {

namespace {

constexpr int N_DECODE = 24;

Sampling warm(uint64_t seed) {
    Sampling sampling;
    sampling.temperature        = 0.9F;
    sampling.top_k              = 50;
    sampling.top_p              = 0.95F;
    sampling.min_p              = 0.01F;
    sampling.penalty_window     = 40;
    sampling.repetition_penalty = 1.1F;
    sampling.frequency_penalty  = 0.1F;
    sampling.presence_penalty   = 0.1F;
    sampling.seed               = seed;
    return sampling;
}

Trace run(Chain & chain, const std::vector<int32_t> & prompt, const Sampling & sampling, int n_decode = N_DECODE) {
    Chain::Session session(chain, static_cast<uint32_t>(prompt.size()) + static_cast<uint32_t>(n_decode));
    chain.stage(chain.size() - 1).sample_with(static_cast<uint32_t>(session.slots().back()), sampling);
    return session.generate(prompt, n_decode);
}

}  // namespace

class Sampled : public ::testing::TestWithParam<const char *> {
protected:
    LlamaEngineParams params = default_params(std::string(GetParam()) == "v4" ? tiny_v4() : tiny_llama());
};

TEST_P(Sampled, TheSeedDecidesWhereverTheModelIsCut) {
    const auto prompt = make_prompt(70);
    Chain      whole(params, {}), split(params, { 2, 6 });
    const Trace one = run(whole, prompt, warm(1));
    EXPECT_NE(one.tokens, run(whole, prompt, warm(2)).tokens);
    EXPECT_NE(one.tokens, whole_trace(params, prompt, N_DECODE).tokens);
    EXPECT_EQ(one.tokens, run(whole, prompt, warm(1)).tokens);
    if (on_cpu()) {  // where the bits of the logits are the same
        const Trace other = run(split, prompt, warm(1));
        EXPECT_TRUE(same_bytes(one.logits, other.logits));
        EXPECT_EQ(one.tokens, other.tokens);
    }
}

// What a client does when a cache was lost: the same frames again, without asking for their tokens, then on.
TEST_P(Sampled, ASessionThatIsRunAgainGoesOnAlike) {
    const auto prompt = make_prompt(60);
    Chain      chain(params, { 2 });
    const auto all = run(chain, prompt, warm(5)).tokens;
    for (const size_t kept : { size_t(1), size_t(9), size_t(20) }) {
        Chain::Session session(chain, 256);
        chain.stage(1).sample_with(static_cast<uint32_t>(session.slots()[1]), warm(5));
        session.execute(prompt);
        std::vector<int32_t> tokens(all.begin(), all.begin() + static_cast<long>(kept));
        for (size_t i = 0; i + 1 < kept; i++) {
            session.execute({ tokens[i] });
        }
        while (tokens.size() < all.size()) {
            tokens.push_back(session.execute({ tokens.back() }).token);
        }
        EXPECT_EQ(tokens, all) << kept;
    }
}

TEST_P(Sampled, TheNextSessionOfTheSlotIsGreedyAgain) {
    const auto prompt = make_prompt(70);
    Chain      chain(params, {});
    run(chain, prompt, warm(1));
    const Trace & greedy = whole_trace(params, prompt, 8);
    EXPECT_EQ(chain.generate(prompt, 8).tokens, greedy.tokens);
    Sampling plain;
    plain.seed  = 3;
    plain.top_k = 7;
    EXPECT_EQ(run(chain, prompt, plain, 8).tokens, greedy.tokens) << "temperature 0";
}

TEST_P(Sampled, SessionsBesideEachOtherHaveTheirOwnWays) {
    const auto prompt   = make_prompt(40);
    params.slot_classes = { { 3, 256 } };
    Chain      chain(params, {});
    const auto sampled = run(chain, prompt, warm(1), 8).tokens;
    const auto greedy  = chain.generate(prompt, 8).tokens;

    Chain::Session one(chain, 256), two(chain, 256), three(chain, 256);
    ShardEngine &  engine = chain.stage(0);
    engine.sample_with(static_cast<uint32_t>(one.slots()[0]), warm(1));
    engine.sample_with(static_cast<uint32_t>(three.slots()[0]), warm(1));
    std::vector<std::vector<int32_t>> tokens(3);
    for (size_t step = 0; step < sampled.size(); step++) {
        size_t i = 0;
        for (Chain::Session * session : { &one, &two, &three }) {
            const auto ids = step == 0 ? prompt : std::vector<int32_t>{ tokens[i].back() };
            tokens[i++].push_back(session->execute(ids).token);
        }
    }
    EXPECT_EQ(tokens[0], sampled);
    EXPECT_EQ(tokens[1], greedy);
    EXPECT_EQ(tokens[2], sampled);
}

TEST_P(Sampled, OnlyTheTailOfASessionThatHasNotBegunTakesIt) {
    Chain          chain(params, { 2 });
    Chain::Session session(chain, 64);
    ShardEngine &  tail = chain.stage(1);
    const auto     slot = static_cast<uint32_t>(session.slots()[1]);
    EXPECT_THROW(chain.stage(0).sample_with(static_cast<uint32_t>(session.slots()[0]), warm(1)), InvalidFrame);
    Sampling bad;
    bad.temperature = -1;
    EXPECT_THROW(tail.sample_with(slot, bad), InvalidFrame);
    tail.sample_with(slot, warm(1));
    session.execute(make_prompt(5));
    EXPECT_THROW(tail.sample_with(slot, warm(2)), InvalidFrame);
    EXPECT_THROW(tail.sample_with(slot + 1, warm(2)), InvalidFrame);
}

INSTANTIATE_TEST_SUITE_P(Families, Sampled, ::testing::Values("v4", "llama"), [](const auto & info) {
    return std::string(info.param);
});

}  // namespace dgr::testing

// The sampler alone, on logits of the tests' own. Upstream's samplers, called directly, are the witness of what is
// kept and how likely it is; arithmetic is that of the draw. Everything is the same at every run.

#include "sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>

namespace dgr::testing {

namespace {

// Logits like a model's, all different; the bits of mt19937 are the same everywhere.
std::vector<float> make_logits(size_t n, uint32_t seed) {
    std::mt19937       random(seed);
    std::vector<float> logits(n);
    for (float & value : logits) {
        const double a = (random() + 0.5) / 4294967296.0;
        const double b = (random() + 0.5) / 4294967296.0;
        value          = static_cast<float>(3 * std::sqrt(-2 * std::log(a)) * std::cos(6.283185307179586 * b));
    }
    return logits;
}

std::vector<int32_t> make_history(size_t n, uint32_t n_vocab, uint32_t seed) {
    std::mt19937         random(seed);
    std::vector<int32_t> ids(n);
    for (int32_t & id : ids) {
        id = static_cast<int32_t>(random() % std::min(n_vocab, 40U));  // many come again
    }
    return ids;
}

// Upstream's usual chain, as its own programs build it: nothing of ours, and unsorted logits.
std::vector<llama_token_data> upstream(const Sampling & s, const std::vector<float> & logits,
                                       const std::vector<int32_t> & history) {
    const auto        n_vocab = static_cast<int32_t>(logits.size());
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_penalties(n_vocab, static_cast<int32_t>(s.penalty_window),
                                                                      s.repetition_penalty, s.frequency_penalty,
                                                                      s.presence_penalty));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_top_k(static_cast<int32_t>(s.top_k)));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_top_p(s.top_p, 0));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_min_p(s.min_p, 0));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_temp(s.temperature));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_dist(7));
    for (const int32_t id : history) {
        llama_sampler_accept(chain.get(), id);
    }
    std::vector<llama_token_data> all;
    for (int32_t id = 0; id < n_vocab; id++) {
        all.push_back({ id, logits[static_cast<size_t>(id)], 0 });
    }
    llama_token_data_array view{ all.data(), all.size(), -1, false };
    llama_sampler_apply(chain.get(), &view);
    std::vector<llama_token_data> kept(view.data, view.data + view.size);
    std::stable_sort(kept.begin(), kept.end(), [](const auto & a, const auto & b) { return a.logit > b.logit; });
    return kept;
}

// The token at a draw, by the words of the contract.
int32_t at_draw(const std::vector<llama_token_data> & kept, double u) {
    double sum = 0;
    for (const llama_token_data & one : kept) {
        sum += double(one.p);
    }
    double running = 0;
    for (const llama_token_data & one : kept) {
        running += double(one.p);
        if (running > u * sum) {
            return one.id;
        }
    }
    return -1;
}

double chi_square(const std::vector<double> & expected, const std::vector<double> & seen) {
    double sum = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        sum += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
    }
    return sum;
}

}  // namespace

TEST(Draw, HasTheBitsOfTheContract) {
    const auto u = [](uint64_t bits) { return double(bits >> 11) / 9007199254740992.0; };
    EXPECT_EQ(draw_at(0, 0), u(0xa706dd2f4d197e6f));
    EXPECT_EQ(draw_at(0, 1), u(0xb382a305f4414f5e));
    EXPECT_EQ(draw_at(1, 0), u(0x5e41ab087439611e));
    EXPECT_EQ(draw_at(1, 7), u(0x3f391c8a76d960bb));
    EXPECT_EQ(draw_at(42, 1000), u(0xb1fc8c824d524899));
    EXPECT_EQ(draw_at(UINT64_MAX, UINT32_MAX), u(0xc65298c82e2d83dc));
}

// 99.9 % of chance's results lie below the limits; the results are the same at every run.
TEST(Draw, IsUniformOverPositionsAndSeedsAndNeighboursHaveNothingToDoWithEachOther) {
    constexpr size_t N = 40000;
    const auto       check = [](const char * what, const auto & first, const auto & second) {
        std::vector<double> seen(64), expected(64, N / 64.0);
        for (uint64_t i = 0; i < N; i++) {
            seen[size_t(first(i) * 8) * 8 + size_t(second(i) * 8)]++;
        }
        EXPECT_LT(chi_square(expected, seen), 103.4) << what;  // 63 degrees of freedom
    };
    for (const uint64_t seed : { uint64_t(0), uint64_t(1), uint64_t(0x9e3779b97f4a7c15), UINT64_MAX }) {
        check("neighbouring positions", [=](uint64_t i) { return draw_at(seed, 2 * i); },
              [=](uint64_t i) { return draw_at(seed, 2 * i + 1); });
        check("neighbouring seeds", [=](uint64_t i) { return draw_at(seed, i); },
              [=](uint64_t i) { return draw_at(seed + 1, i); });
        check("a seed one step of the generator on", [=](uint64_t i) { return draw_at(seed, i + 1); },
              [=](uint64_t i) { return draw_at(seed + 0x9e3779b97f4a7c15, i); });
        check("seeds at one position", [=](uint64_t i) { return draw_at(2 * i, seed); },
              [=](uint64_t i) { return draw_at(2 * i + 1, seed); });
    }
}

TEST(Draw, PicksByTheRunningSum) {
    const std::vector<llama_token_data> some = { { 5, 0, 0.5F }, { 6, 0, 0.0F }, { 7, 0, 0.25F }, { 8, 0, 0.25F } };
    EXPECT_EQ(pick(some.data(), 4, 0), 0U);
    EXPECT_EQ(pick(some.data(), 4, 0.49999), 0U);
    EXPECT_EQ(pick(some.data(), 4, 0.5), 2U) << "what has no probability is never picked";
    EXPECT_EQ(pick(some.data(), 4, 0.75), 3U);
    EXPECT_EQ(pick(some.data(), 4, 1 - 0x1p-53), 3U);
    EXPECT_EQ(pick(some.data(), 1, 1 - 0x1p-53), 0U);
    for (const float bad : { 0.0F, NAN, HUGE_VALF }) {
        const llama_token_data none{ 1, 0, bad };
        EXPECT_THROW(pick(&none, 1, 0.5), std::runtime_error);
    }
}

TEST(Order, IsThatOfComparingWhateverTheLogitsAre) {
    std::mt19937       random(11);
    const float        odd[] = { 0.0F, -0.0F, 1e-45F, -1e-45F, FLT_MAX, -FLT_MAX, HUGE_VALF, -HUGE_VALF, 1.0F, -1.0F };
    CandidateOrder     order;
    for (const size_t n : { size_t(1), size_t(2), size_t(100), size_t(5000) }) {
        std::vector<llama_token_data> candidates;
        for (size_t i = 0; i < n; i++) {
            const uint32_t drawn = random();
            float          logit = float(int32_t(drawn)) * 1e-8F;
            if (drawn % 3 == 0) {
                logit = odd[drawn / 3 % 10];
            } else if (drawn % 3 == 1) {
                logit = float(drawn / 3 % 7) - 3;  // many equal ones
            }
            candidates.push_back({ llama_token(i), logit, 0 });
        }
        auto expected = candidates;
        std::sort(expected.begin(), expected.end(), stands_before);
        for (const size_t first : { size_t(1), n / 20 + 1, n }) {
            auto ours = candidates;
            order.put_first(ours, first);
            for (size_t i = 0; i < first; i++) {
                ASSERT_EQ(ours[i].id, expected[i].id) << first << " of " << n << " at " << i;
                ASSERT_EQ(ours[i].logit, expected[i].logit);
            }
        }
    }
}

TEST(Sampler, KeepsAndWeighsAsUpstreamDoes) {
    std::vector<Sampling> wanted;
    for (const float temperature : { 0.3F, 1.0F, 2.5F }) {
        for (const uint32_t top_k : { 0U, 1U, 40U, 5000U }) {
            for (const float top_p : { 0.4F, 0.95F, 1.0F }) {
                for (const float min_p : { 0.0F, 0.1F }) {
                    Sampling s;
                    s.temperature = temperature;
                    s.top_k       = top_k;
                    s.top_p       = top_p;
                    s.min_p       = min_p;
                    s.seed        = wanted.size();
                    if (wanted.size() % 2 == 1) {
                        s.penalty_window     = 64;
                        s.repetition_penalty = 1.3F;
                        s.frequency_penalty  = 0.2F;
                        s.presence_penalty   = -0.4F;
                    }
                    wanted.push_back(s);
                }
            }
        }
    }
    for (const uint32_t n_vocab : { 50U, 3000U }) {
        for (const Sampling & s : wanted) {
            SCOPED_TRACE("n_vocab " + std::to_string(n_vocab) + ", sampling " + std::to_string(s.seed));
            const std::vector<float>   logits  = make_logits(n_vocab, n_vocab + uint32_t(s.seed));
            const std::vector<int32_t> history = make_history(200, n_vocab, 3);
            const auto                 kept    = upstream(s, logits, history);

            Sampler sampler(s, n_vocab, 4096);
            sampler.accept(history.data(), 150);
            sampler.accept(history.data() + 150, 50);
            for (uint64_t position = 200; position < 280; position++) {
                ASSERT_EQ(sampler.choose(logits.data(), position), at_draw(kept, draw_at(s.seed, position)));
            }
        }
    }
}

TEST(Sampler, ChoosesAsOftenAsIsLikely) {
    constexpr size_t         N      = 50000;
    const std::vector<float> logits = { 1.0F, 0.5F, 2.0F, -1.0F, 0.0F, 1.5F, 0.25F, -0.5F };
    for (const float temperature : { 0.7F, 1.0F, 3.0F }) {
        Sampling s;
        s.temperature = temperature;
        s.seed        = 20260101;
        double sum    = 0;
        for (const float value : logits) {
            sum += std::exp(double(value) / double(temperature));
        }
        std::vector<double> expected, seen(logits.size());
        for (const float value : logits) {
            expected.push_back(N * std::exp(double(value) / double(temperature)) / sum);
        }
        Sampler sampler(s, uint32_t(logits.size()), 64);
        for (uint64_t position = 0; position < N; position++) {
            seen[size_t(sampler.choose(logits.data(), position))]++;
        }
        EXPECT_LT(chi_square(expected, seen), 24.3) << temperature;  // 99.9 % at 7 degrees of freedom
    }
}

TEST(Sampler, AChoiceDependsOnNoOtherChoice) {
    Sampling s;
    s.temperature                   = 1;
    s.seed                          = 9;
    const std::vector<float> logits = make_logits(300, 1);
    const std::vector<float> other  = make_logits(300, 2);
    std::vector<int32_t>     forward, backward;
    Sampler                  one(s, 300, 64), two(s, 300, 64);
    for (uint64_t position = 0; position < 64; position++) {
        forward.push_back(one.choose(logits.data(), position));
    }
    for (uint64_t position = 64; position-- > 0;) {
        two.choose(other.data(), position * 3);
        backward.push_back(two.choose(logits.data(), position));
    }
    std::reverse(backward.begin(), backward.end());
    EXPECT_EQ(forward, backward);
    EXPECT_GT(std::count_if(forward.begin(), forward.end(), [&](int32_t id) { return id != forward[0]; }), 20);
}

TEST(Sampler, EqualLogitsAreCutByTheirIds) {
    std::vector<float> logits(1000, 1.0F);
    logits[0] = -0.0F;
    logits[1] = 0.0F;
    Sampling s;
    s.temperature = 1;
    s.top_k       = 3;
    Sampler top_k(s, 1000, 64);
    s.top_k = 0;
    s.top_p = 0.0025F;  // 998 equal ones: three hold it
    Sampler              top_p(s, 1000, 64);
    std::vector<int32_t> seen_k(1000), seen_p(1000);
    for (uint64_t position = 0; position < 200; position++) {
        seen_k[size_t(top_k.choose(logits.data(), position))]++;
        seen_p[size_t(top_p.choose(logits.data(), position))]++;
    }
    EXPECT_EQ(seen_k, seen_p);
    EXPECT_EQ(seen_k[2] + seen_k[3] + seen_k[4], 200);
    EXPECT_GT(std::min({ seen_k[2], seen_k[3], seen_k[4] }), 40);
}

TEST(Sampler, GreedyWithPenaltiesTakesTheLowestIdOfTheMaxima) {
    const std::vector<float> logits = { 0.0F, 2.0F, 2.0F, -1.0F, 1.5F };
    Sampling                 s;
    s.penalty_window   = 3;
    s.presence_penalty = 1;
    Sampler sampler(s, 5, 64);
    EXPECT_EQ(sampler.choose(logits.data(), 0), 1);
    const std::vector<int32_t> ids = { 1, 1, 2, 3 };
    sampler.accept(ids.data(), 2);
    EXPECT_EQ(sampler.choose(logits.data(), 2), 2);
    sampler.accept(ids.data() + 2, 1);
    EXPECT_EQ(sampler.choose(logits.data(), 3), 4);
    sampler.accept(ids.data() + 3, 1);
    EXPECT_EQ(sampler.choose(logits.data(), 4), 4) << "id 1 is in the window still";
    sampler.accept(ids.data() + 3, 1);
    EXPECT_EQ(sampler.choose(logits.data(), 5), 1) << "and now it is not";
}

TEST(Sampler, AWindowBeyondTheSessionIsTheWholeSession) {
    Sampling s;
    s.penalty_window     = MAX_PENALTY_WINDOW;
    s.repetition_penalty = 10;
    const std::vector<float>   logits(8, 1.0F);
    const std::vector<int32_t> ids = { 0, 1, 2, 3, 4, 5, 6, 6 };
    Sampler                    sampler(s, 8, 8);
    sampler.accept(ids.data(), 8);
    EXPECT_EQ(sampler.choose(logits.data(), 8), 7);
}

TEST(Sampler, OneCandidateOrALittleWarmthIsGreedy) {
    for (const auto & spoil : std::vector<void (*)(Sampling &)>{
             [](Sampling & s) { s.top_k = 1; },
             [](Sampling & s) { s.top_p = 1e-30F; },
             [](Sampling & s) { s.min_p = 1; },
             [](Sampling & s) { s.temperature = 0.001F; },
         }) {
        Sampling s;
        s.temperature = 1;
        spoil(s);
        Sampler sampler(s, 400, 64);
        for (uint32_t i = 0; i < 20; i++) {
            const auto logits = make_logits(400, i);
            EXPECT_EQ(sampler.choose(logits.data(), i), std::max_element(logits.begin(), logits.end()) - logits.begin());
        }
    }
}

TEST(Sampler, LogitsThatGiveNoProbabilitiesAreAnErrorAndDoNoHarm) {
    Sampling s;
    s.temperature        = 0.001F;
    s.top_p              = 0.9F;
    s.min_p              = 0.1F;
    s.penalty_window     = 8;
    s.repetition_penalty = 0.1F;
    Sampler       sampler(s, 4, 64);
    const int32_t id = 0;
    sampler.accept(&id, 1);
    for (const float bad : { NAN, HUGE_VALF, -HUGE_VALF, FLT_MAX }) {
        const std::vector<float> logits = { bad, 1.0F, FLT_MAX, 0.0F };
        EXPECT_THROW(sampler.choose(logits.data(), 1), std::runtime_error) << bad;
    }
    const std::vector<float> good = { 0.0F, 1.0F, 9.0F, 0.0F };
    EXPECT_EQ(sampler.choose(good.data(), 1), 2);
}

TEST(Sampler, ValuesOutsideTheirRangesAreNamed) {
    SlotSamplers samplers;
    Sampling     s;
    s.top_p = NAN;
    try {
        samplers.set(0, s, 8, 8);
        FAIL();
    } catch (const InvalidFrame & error) {
        EXPECT_EQ(error.field, "sampling.top_p");
        EXPECT_NE(std::string(error.what()).find("up to 1"), std::string::npos) << error.what();
    }
}

}  // namespace dgr::testing

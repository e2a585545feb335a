// Frames of several slots in one call: near to what each slot computes alone, refused whole when they do not fit together.

#include "parity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dgr::testing {

namespace {

// Teacher-forced, so a token chosen otherwise does not make everything after it differ. The limits are those of the
// lanes that do not promise equal bits: the noise floor of these models (see evidence/noise-floor).
constexpr double NEAR_V4     = 0.05;
constexpr double NEAR_LLAMA  = 1e-4;
constexpr double NEAR_GEMMA3 = 4e-5;

double nmse(const std::vector<float> & ours, const std::vector<float> & theirs) {
    double error = 0;
    double power = 0;
    for (size_t i = 0; i < theirs.size(); i++) {
        error += std::pow(double(ours[i]) - theirs[i], 2);
        power += std::pow(double(theirs[i]), 2);
    }
    return error / power;
}

LlamaEngineParams with_slots(const std::string & model, std::vector<SlotClass> classes) {
    LlamaEngineParams params = default_params(model);
    params.slot_classes      = std::move(classes);
    return params;
}

// The same steps for every slot of a chain, all in one call a stage.
class Crowd {
public:
    Crowd(Chain & crowd_chain, size_t n) : chain(crowd_chain), logits(n) {
        for (size_t i = 0; i < chain.size(); i++) {
            for (size_t slot = 0; slot < n; slot++) {
                EXPECT_EQ(chain.stage(i).open(256), static_cast<int32_t>(slot));
            }
        }
    }

    void step(const std::vector<std::vector<int32_t>> & ids) {
        const size_t              n = ids.size();
        std::vector<EngineOutput> outputs(n);
        for (size_t i = 0; i < chain.size(); i++) {
            std::vector<EngineFrame> frames(n);
            for (size_t slot = 0; slot < n; slot++) {
                frames[slot].slot           = static_cast<uint32_t>(slot);
                frames[slot].first_position = position;
                frames[slot].n_rows         = static_cast<uint32_t>(ids[slot].size());
                frames[slot].token_ids      = ids[slot].data();
                frames[slot].boundary       = outputs[slot].boundary;
                frames[slot].want_token     = i + 1 == chain.size();
                frames[slot].want_logits    = i + 1 == chain.size() ? LogitsWanted::all : LogitsWanted::none;
            }
            outputs.assign(n, {});
            chain.stage(i).execute_joined(frames.data(), outputs.data(), n);
        }
        for (size_t slot = 0; slot < n; slot++) {
            logits[slot].insert(logits[slot].end(), outputs[slot].logits.begin(), outputs[slot].logits.end());
        }
        position += static_cast<uint32_t>(ids[0].size());
    }

    Chain &                         chain;
    std::vector<std::vector<float>> logits;  // of each slot
    uint32_t                        position = 0;
};

void expect_near_to_solo(const std::string & model, const std::vector<uint32_t> & cuts, double limit) {
    constexpr size_t   N        = 4;
    constexpr int      N_DECODE = 6;
    Chain              chain(with_slots(model, { { N, 256 } }), cuts);
    Crowd              crowd(chain, N);
    std::vector<Trace> solo;
    for (size_t slot = 0; slot < N; slot++) {
        LlamaEngineParams params = with_slots(model, { { 1, 256 } });
        params.n_ubatch          = 16;
        solo.push_back(solo_trace(params, cuts, make_prompt(32, static_cast<uint32_t>(slot + 1)), N_DECODE));
    }
    for (size_t first = 0; first < 32; first += 16) {  // 4 x 16 rows fill an ubatch
        std::vector<std::vector<int32_t>> ids;
        for (size_t slot = 0; slot < N; slot++) {
            const auto prompt = make_prompt(32, static_cast<uint32_t>(slot + 1));
            ids.emplace_back(prompt.begin() + static_cast<long>(first), prompt.begin() + static_cast<long>(first) + 16);
        }
        crowd.step(ids);
    }
    for (size_t step = 0; step < N_DECODE; step++) {
        std::vector<std::vector<int32_t>> ids;
        for (size_t slot = 0; slot < N; slot++) {
            ids.push_back({ solo[slot].tokens[step] });
        }
        crowd.step(ids);
    }
    for (size_t slot = 0; slot < N; slot++) {
        ASSERT_EQ(crowd.logits[slot].size(), solo[slot].logits.size());
        EXPECT_LE(nmse(crowd.logits[slot], solo[slot].logits), limit) << "slot " << slot;
        EXPECT_GT(nmse(crowd.logits[slot], solo[(slot + 1) % N].logits), limit) << "another slot's would pass too";
    }
}

}  // namespace

TEST(Joined, SlotsOfADenseModelComeNearToTheirSoloRuns) {
    expect_near_to_solo(tiny_llama(), { 2 }, NEAR_LLAMA);
}

TEST(Joined, SlotsOfAModelWithWindowsComeNearToTheirSoloRuns) {
    expect_near_to_solo(tiny_gemma3(), { 5, 6 }, NEAR_GEMMA3);
}

TEST(Joined, SlotsOfAV4ComeNearToTheirSoloRuns) {
    expect_near_to_solo(tiny_v4(), { 2, 21 }, NEAR_V4);
}

TEST(Joined, FramesThatDoNotFitTogetherAreRefusedWhole) {
    const auto engine = make_llama_engine(with_slots(tiny_llama(), { { 3, 128 }, { 1, 256 } }));
    const auto ids    = make_prompt(64);
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(engine->open(128), i);
    }
    ASSERT_EQ(engine->open(256), 3);

    struct Case {
        const char *                                 field;
        std::vector<std::pair<uint32_t, uint32_t>> frames;  // slot, rows
    };
    const std::vector<Case> cases = {
        { "slot", { { 0, 1 }, { 2, 1 } } },              // a gap
        { "slot", { { 1, 1 }, { 0, 1 } } },              // not ascending
        { "slot", { { 0, 1 }, { 0, 1 } } },              // twice the same
        { "slot", { { 2, 1 }, { 3, 1 } } },              // two classes
        { "rows", { { 0, 1 }, { 1, 2 } } },              // unequal
        { "rows", { { 0, 30 }, { 1, 30 }, { 2, 30 } } }, // more than an ubatch
        { "rows", { { 0, 1 }, { 1, 0 } } },              // one that breaks a rule of its own
    };
    for (const Case & bad : cases) {
        std::vector<EngineFrame> frames;
        for (const auto & [slot, rows] : bad.frames) {
            EngineFrame frame;
            frame.slot      = slot;
            frame.n_rows    = rows;
            frame.token_ids = ids.data();
            frames.push_back(frame);
        }
        std::vector<EngineOutput> outputs(frames.size());
        try {
            engine->execute_joined(frames.data(), outputs.data(), frames.size());
            ADD_FAILURE() << bad.field;
        } catch (const InvalidFrame & error) {
            EXPECT_EQ(error.field, bad.field) << error.what();
        }
    }
    EXPECT_THROW(engine->execute_joined(nullptr, nullptr, 0), InvalidFrame);
    for (uint32_t slot = 0; slot < 4; slot++) {
        EXPECT_EQ(engine->position(slot), 0U);
    }
}

TEST(Overflow, AFailedCallClearsEverySlotInIt) {
    LlamaEngineParams params = with_slots(tiny_v4(), { { 3, 256 } });
    params.boundary_limit    = std::numeric_limits<float>::max();
    params.range             = { 21, 0 };
    const auto engine        = make_llama_engine(params);
    const auto ids           = make_prompt(8);
    const auto width         = engine->describe().boundary.width;

    const std::vector<float>  good(size_t(8) * width, 0.25F);
    const std::vector<float>  bad(size_t(8) * width, std::numeric_limits<float>::max());
    std::vector<EngineFrame>  frames(2);
    std::vector<EngineOutput> outputs(2);
    for (uint32_t slot = 0; slot < 3; slot++) {
        ASSERT_EQ(engine->open(256), static_cast<int32_t>(slot));
    }
    for (uint32_t slot = 0; slot < 2; slot++) {
        frames[slot].slot      = slot;
        frames[slot].n_rows    = 8;
        frames[slot].token_ids = ids.data();
        frames[slot].boundary  = slot == 0 ? good.data() : bad.data();
    }
    EXPECT_THROW(engine->execute_joined(frames.data(), outputs.data(), 2), EngineFailure);
    EXPECT_THROW(engine->check(frames[0]), EngineFailure) << "its state is lost too";
    EXPECT_EQ(engine->position(0), 0U);

    frames[0].slot = 2;
    EXPECT_NO_THROW(engine->execute(frames[0])) << "it was not in the call";
}

}  // namespace dgr::testing

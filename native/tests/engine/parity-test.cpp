// A chain of ranges gives the bytes of the whole model; and something that should differ does.

#include "parity.h"

#include <gtest/gtest.h>

namespace dgr::testing {

namespace {

// Expects each way to cut to give the whole model's bytes.
void expect_parity(const LlamaEngineParams & params, const std::vector<std::vector<uint32_t>> & ways,
                   const std::vector<int32_t> & prompt, int n_decode) {
    const Trace & whole = whole_trace(params, prompt, n_decode);
    for (const auto & cuts : ways) {
        std::string named = "cuts";
        for (const uint32_t cut : cuts) {
            named += " " + std::to_string(cut);
        }
        SCOPED_TRACE(named + ", prompt " + std::to_string(prompt.size()));
        const Trace split = Chain(params, cuts).generate(prompt, n_decode);
        EXPECT_TRUE(same_bytes(whole.logits, split.logits));
        EXPECT_EQ(whole.tokens, split.tokens);
    }
}

std::vector<uint32_t> all_cuts(uint32_t n_layer) {
    std::vector<uint32_t> cuts;
    for (uint32_t cut = 1; cut < n_layer; cut++) {
        cuts.push_back(cut);
    }
    return cuts;
}

void expect_parity_at_every_cut(const std::string & model) {
    const LlamaEngineParams params  = default_params(model);
    const uint32_t          n_layer = Chain(params, {}).stage(0).describe().n_layer;
    ASSERT_GE(n_layer, 2U);

    std::vector<std::vector<uint32_t>> ways = { all_cuts(n_layer) };
    for (const uint32_t cut : all_cuts(n_layer)) {
        ways.push_back({ cut });
    }
    expect_parity(params, ways, make_prompt(130), 5);
}

void expect_parity_in_frames(const std::string & model, const std::vector<uint32_t> & cuts) {
    for (const uint32_t n_ubatch : { 512, 17, 1 }) {
        LlamaEngineParams params = default_params(model);
        params.n_ubatch          = n_ubatch;
        expect_parity(params, { cuts }, make_prompt(n_ubatch == 1 ? 40 : 300), 3);
    }
}

void expect_parity_with_quantised_cache(const std::string & model, const std::vector<std::vector<uint32_t>> & ways) {
    LlamaEngineParams params = default_params(model);
    params.flash_attn        = true;
    params.type_k            = "q8_0";
    params.type_v            = "q8_0";
    expect_parity(params, ways, make_prompt(130), 3);
}

const std::vector<uint32_t> TWELVE_STAGES = { 4, 8, 12, 16, 20, 24, 28, 32, 36, 39, 41 };

}  // namespace

TEST(ParityV4, EveryCutFrom1To42) {
    std::vector<std::vector<uint32_t>> ways;
    for (const uint32_t cut : all_cuts(43)) {
        ways.push_back({ cut });
    }
    LlamaEngineParams params = default_params(tiny_v4());
    params.n_ubatch          = 16;
    expect_parity(params, ways, make_prompt(40), 2);
}

TEST(ParityV4, PromptsAroundTheHcaBlock) {
    for (const size_t n : { 127, 128, 129, 130 }) {
        expect_parity(default_params(tiny_v4()), { { 2 }, { 3, 22, 41 } }, make_prompt(n), 6);
    }
}

TEST(ParityV4, PromptOf300SoThatTheIndexerDropsBlocks) {
    expect_parity(default_params(tiny_v4()), { { 21 }, { 2, 9, 14, 23, 30, 42 }, TWELVE_STAGES }, make_prompt(300), 10);
}

TEST(ParityV4, OneStageALayer) {
    expect_parity(default_params(tiny_v4()), { all_cuts(43) }, make_prompt(130), 4);
}

TEST(ParityV4, FramesOf512And17And1Rows) {
    expect_parity_in_frames(tiny_v4(), { 2, 20 });
}

TEST(ParityV4, WithFlashAttention) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.flash_attn        = true;
    expect_parity(params, { { 1 }, { 5, 22 } }, make_prompt(130), 3);
}

TEST(ParityV4, WithTwoThreads) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.n_threads         = 2;
    params.n_threads_batch   = 2;
    expect_parity(params, { { 22 } }, make_prompt(40), 1);
}

TEST(ParityV4, WithAQuantisedCache) {
    expect_parity_with_quantised_cache(tiny_v4(), { { 5, 22 } });
}

TEST(ParityV4, WithoutMmap) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.use_mmap          = false;
    expect_parity(params, { { 2, 30 } }, make_prompt(70), 3);
}

TEST(ParityLlama, EveryCutAndOneStageALayer) {
    expect_parity_at_every_cut(tiny_llama());
}

TEST(ParityQwen3, EveryCutAndOneStageALayer) {
    expect_parity_at_every_cut(tiny_qwen3());
}

TEST(ParityQwen3, FramesOf512And17And1Rows) {
    expect_parity_in_frames(tiny_qwen3(), { 3, 6 });
}

TEST(ParityQwen3, WithAQuantisedCache) {
    expect_parity_with_quantised_cache(tiny_qwen3(), { { 1 }, { 3, 6 } });
}

TEST(ParityGemma3, EveryCutAndOneStageALayer) {
    expect_parity_at_every_cut(tiny_gemma3());
}

// The tiny model's window is 32 positions.
TEST(ParityGemma3, PromptsAroundTheWindow) {
    for (const size_t n : { 31, 32, 33, 34 }) {
        expect_parity(default_params(tiny_gemma3()), { { 1 }, { 5, 6 } }, make_prompt(n), 6);
    }
}

// Its cache has 256 cells, which are taken again from there on.
TEST(ParityGemma3, PromptsPastTheCellsOfTheWindow) {
    for (const size_t n : { 255, 256, 257, 300 }) {
        expect_parity(default_params(tiny_gemma3()), { { 2, 5, 6, 11 } }, make_prompt(n), 6);
    }
}

TEST(ParityGemma3, FramesOf512And17And1Rows) {
    expect_parity_in_frames(tiny_gemma3(), { 5, 6 });
}

TEST(ParityGemma3, WithAQuantisedCache) {
    expect_parity_with_quantised_cache(tiny_gemma3(), { { 1 }, { 5, 6 } });
}

// Controls: what the comparisons above must be able to see.

TEST(ParityControl, OneSwappedIdChangesTheBytes) {
    const LlamaEngineParams params = default_params(tiny_v4());
    std::vector<int32_t>    prompt = make_prompt(40);
    const Trace &           whole  = whole_trace(params, prompt, 2);

    ASSERT_NE(prompt[11], prompt[12]);
    std::swap(prompt[11], prompt[12]);
    EXPECT_FALSE(same_bytes(whole.logits, Chain(params, { 21 }).generate(prompt, 2).logits));
}

TEST(ParityControl, OneSwappedIdChangesTheBytesOfADenseModel) {
    for (const std::string & model : { tiny_llama(), tiny_qwen3(), tiny_gemma3() }) {
        const LlamaEngineParams params = default_params(model);
        std::vector<int32_t>    prompt = make_prompt(40);
        const Trace &           whole  = whole_trace(params, prompt, 2);

        ASSERT_NE(prompt[11], prompt[12]);
        std::swap(prompt[11], prompt[12]);
        EXPECT_FALSE(same_bytes(whole.logits, Chain(params, { 5 }).generate(prompt, 2).logits)) << model;
    }
}

TEST(ParityControl, IdsSwappedOnAHashRoutedStageOnlyChangeTheBytes) {
    const LlamaEngineParams    params = default_params(tiny_v4());
    const std::vector<int32_t> prompt = make_prompt(40);
    std::vector<int32_t>       other  = prompt;
    std::swap(other[11], other[12]);

    Chain chain(params, { 1 });
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(chain.stage(i).open(64), 0);
    }
    EngineFrame frame;
    frame.n_rows             = 40;
    frame.token_ids          = prompt.data();
    const EngineOutput first = chain.stage(0).execute(frame);

    frame.token_ids            = other.data();
    frame.boundary             = first.boundary;
    frame.want_logits          = LogitsWanted::all;
    const EngineOutput swapped = chain.stage(1).execute(frame);
    EXPECT_FALSE(same_bytes(whole_trace(params, prompt, 0).logits, swapped.logits));
}

TEST(ParityControl, AChangedBoundaryValueChangesTheBytes) {
    const LlamaEngineParams    params = default_params(tiny_v4());
    const std::vector<int32_t> prompt = make_prompt(40);

    Chain chain(params, { 21 });
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(chain.stage(i).open(64), 0);
    }
    EngineFrame frame;
    frame.n_rows    = 40;
    frame.token_ids = prompt.data();

    const EngineOutput first  = chain.stage(0).execute(frame);
    const size_t       values = size_t(40) * chain.stage(0).describe().boundary.width;
    std::vector<float> boundary(first.boundary, first.boundary + values);
    boundary[1000] += 0.01F;

    frame.boundary             = boundary.data();
    frame.want_logits          = LogitsWanted::all;
    const EngineOutput changed = chain.stage(1).execute(frame);
    EXPECT_FALSE(same_bytes(whole_trace(params, prompt, 0).logits, changed.logits));
}

TEST(ParityControl, AnotherFrameSplitChangesTheBytes) {
    const std::vector<int32_t> prompt = make_prompt(300);
    LlamaEngineParams          params = default_params(tiny_v4());
    const Trace &              whole  = whole_trace(params, prompt, 0);
    params.n_ubatch                   = 512;
    EXPECT_FALSE(same_bytes(whole.logits, Chain(params, { 21 }).generate(prompt, 0).logits));
}

}  // namespace dgr::testing

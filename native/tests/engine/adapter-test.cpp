// Adapters: what they say about a model agrees with what upstream does.

#include "parity.h"

#include "adapter.h"
#include "llama-setup.h"
#include "upstream-log.h"

#include "llama-ext.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <functional>

namespace dgr::testing {

namespace {

// Bytes of all caches that upstream makes for the range.
uint64_t allocated(const LlamaEngineParams & params, uint32_t n_layer) {
    const auto model   = load_model(params, n_layer);
    const auto pool    = make_threadpool(params);
    const bool is_tail = params.range.last == n_layer;
    const auto context = make_context(model.get(), params, params.slot_classes[0], is_tail, pool.get());

    uint64_t total = 0;
    for (const auto & [type, sizes] : llama_get_memory_breakdown(context.get())) {
        total += sizes.context;
    }
    return total;
}

const StateKind * find(const EngineDescription & description, const std::string & name) {
    for (const StateKind & kind : description.state) {
        if (kind.name == name) {
            return &kind;
        }
    }
    return nullptr;
}

// Writes a model with other metadata and the same tensors.
void write_changed(const std::string & model, const std::string & path,
                   const std::function<void(gguf_context *)> & change) {
    ggml_context *         tensors = nullptr;
    const gguf_context_ptr from(gguf_init_from_file(model.c_str(), { /*.no_alloc =*/ false, /*.ctx =*/ &tensors }));
    const ggml_context_ptr data(tensors);
    const gguf_context_ptr to(gguf_init_empty());
    gguf_set_kv(to.get(), from.get());
    change(to.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(from.get()); i++) {
        gguf_add_tensor(to.get(), ggml_get_tensor(data.get(), gguf_get_tensor_name(from.get(), i)));
    }
    ASSERT_TRUE(gguf_write_to_file(to.get(), path.c_str(), false));
}

void expect_state_as_allocated(const std::string & path, const std::vector<LayerRange> & ranges) {
    route_upstream_log();
    const GgufFile file(path);
    const auto     adapter = make_adapter(file);
    for (const LayerRange & wanted : ranges) {
        for (const SlotClass & slots : { SlotClass{ 1, 512 }, SlotClass{ 3, 100 }, SlotClass{ 2, 5000 } }) {
            for (const char * type : { "f16", "f32", "q8_0" }) {
                LlamaEngineParams params = default_params(path);
                params.range             = wanted;
                params.range.last        = wanted.last == 0 ? adapter->facts().n_layer : wanted.last;
                params.slot_classes      = { slots };
                params.type_k = params.type_v = type;
                params.flash_attn             = std::string(type) == "q8_0";
                SCOPED_TRACE("[" + std::to_string(params.range.first) + ", " + std::to_string(params.range.last) +
                             ") slots " + std::to_string(slots.slots) + " x " + std::to_string(slots.n_ctx) +
                             " " + type);

                uint64_t stated = 0;
                uint64_t line   = 0;
                for (const StateLayout & layout : adapter->state(params.range, cache_settings(params))) {
                    const StateKind kind = layout.describe(slots.n_ctx);
                    stated += slots.slots * layout.slot_bytes(slots.n_ctx);
                    line += slots.slots * (kind.fixed_bytes + kind.bytes_per_token * slots.n_ctx);
                }
                EXPECT_EQ(stated, allocated(params, adapter->facts().n_layer));
                EXPECT_EQ(stated, line);
            }
        }
    }
}

}  // namespace

TEST(DeepSeek4Adapter, StateIsExactlyWhatUpstreamAllots) {
    expect_state_as_allocated(tiny_v4(), { { 0, 0 }, { 0, 1 }, { 3, 4 }, { 2, 22 }, { 40, 0 } });
}

TEST(DenseAdapter, StateIsExactlyWhatUpstreamAllots) {
    expect_state_as_allocated(tiny_llama(), { { 0, 0 }, { 0, 1 }, { 1, 0 } });
    expect_state_as_allocated(tiny_qwen3(), { { 0, 0 }, { 0, 1 }, { 1, 0 } });
}

TEST(WindowedAdapter, StateIsExactlyWhatUpstreamAllots) {
    expect_state_as_allocated(tiny_gemma3(), { { 0, 0 }, { 0, 5 }, { 5, 6 }, { 4, 7 }, { 6, 0 } });
}

TEST(WindowedAdapter, StateFollowsThePatternThatAFileStates) {
    const auto every_third = [](gguf_context * c) {
        gguf_set_val_u32(c, "gemma3.attention.sliding_window_pattern", 3);
    };
    const auto first_two = [](gguf_context * c) {
        const int8_t windows[] = { 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        gguf_set_arr_data(c, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, windows, 12);
    };
    const auto no_window = [](gguf_context * c) { gguf_set_val_u32(c, "gemma3.attention.sliding_window", 0); };

    const std::string path = std::string(::testing::TempDir()) + "/dgr-pattern-" + std::to_string(getpid()) + ".gguf";
    struct Case {
        std::function<void(gguf_context *)> change;
        std::vector<uint32_t>               without;  // layers that have no window
    };
    const std::vector<Case> cases = {
        { every_third, { 2, 5, 8, 11 } },
        { first_two, { 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },
        { no_window, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },
    };
    for (const Case & one : cases) {
        write_changed(tiny_gemma3(), path, one.change);
        expect_state_as_allocated(path, { { 0, 0 }, { 1, 3 } });
        for (const StateLayout & kind : make_adapter(GgufFile(path))->state({ 0, 12 }, {})) {
            EXPECT_EQ(kind.name == "kv", kind.layers == one.without) << kind.name;
        }
    }
    std::remove(path.c_str());
}

TEST(WindowedAdapter, ARangeListsItsWindowedLayersApart) {
    LlamaEngineParams params = default_params(tiny_gemma3());
    params.range             = { 4, 7 };
    const auto engine        = make_llama_engine(params);
    const auto & middle      = engine->describe();
    EXPECT_EQ(find(middle, "kv")->layers, (std::vector<uint32_t>{ 5 }));
    EXPECT_EQ(find(middle, "kv-swa")->layers, (std::vector<uint32_t>{ 4, 6 }));
    EXPECT_GT(find(middle, "kv")->bytes_per_token, 0U);
    EXPECT_EQ(find(middle, "kv-swa")->bytes_per_token, 0U);
    EXPECT_EQ(middle.boundary.width, middle.n_embd);
}

TEST(DeepSeek4Adapter, DescribesTheRealLayerPlan) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.isa               = "x86-64-v3";
    const auto   engine      = make_llama_engine(params);
    const auto & whole       = engine->describe();

    EXPECT_EQ(whole.architecture, "deepseek4");
    EXPECT_EQ(whole.adapter, "deepseek4");
    EXPECT_EQ(whole.n_layer, 43U);
    EXPECT_EQ(whole.n_layer_nextn, 1U);
    EXPECT_EQ(whole.range.last, 43U);
    EXPECT_TRUE(whole.is_head() && whole.is_tail());
    EXPECT_EQ(whole.boundary.name, "mhc-residual");
    EXPECT_EQ(whole.boundary.width, 4 * whole.n_embd);
    EXPECT_EQ(whole.numerics.isa, "x86-64-v3");
    EXPECT_FALSE(whole.numerics.extra_buffer_types);
    EXPECT_FALSE(whole.devices.empty());

    ASSERT_EQ(whole.legal_cuts.size(), 42U);
    for (uint32_t i = 0; i < 42; i++) {
        EXPECT_EQ(whole.legal_cuts[i].layer, i + 1);
        EXPECT_EQ(whole.legal_cuts[i].carries_draft_head, i + 1 <= 40);
    }

    ASSERT_NE(find(whole, "kv-swa"), nullptr);
    EXPECT_EQ(find(whole, "kv-swa")->layers.size(), 43U);
    EXPECT_EQ(find(whole, "csa")->layers.size() + find(whole, "hca")->layers.size(), 41U);
    EXPECT_EQ(find(whole, "csa")->layers, find(whole, "indexer")->layers);
    EXPECT_EQ(find(whole, "mtp-kv-swa")->layers, (std::vector<uint32_t>{ 43 }));
    EXPECT_EQ(find(whole, "kv-swa")->bytes_per_token, 0U);
    EXPECT_GT(find(whole, "csa")->bytes_per_token, 0U);
    EXPECT_EQ(find(whole, "csa-compressor")->bytes_per_token, 0U);
}

TEST(DeepSeek4Adapter, ARangeListsOnlyItsOwnStateByAbsoluteLayer) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.range             = { 0, 2 };
    const auto plain         = make_llama_engine(params);
    EXPECT_EQ(find(plain->describe(), "kv-swa")->layers, (std::vector<uint32_t>{ 0, 1 }));
    EXPECT_EQ(plain->describe().state.size(), 1U) << "two uncompressed layers keep raw entries only";

    params.range      = { 10, 12 };
    const auto middle = make_llama_engine(params);
    EXPECT_EQ(find(middle->describe(), "kv-swa")->layers, (std::vector<uint32_t>{ 10, 11 }));
    EXPECT_EQ(find(middle->describe(), "csa")->layers.size(), 1U);
    EXPECT_EQ(find(middle->describe(), "hca")->layers.size(), 1U);
    EXPECT_EQ(find(middle->describe(), "mtp-kv-swa"), nullptr);
}

TEST(Adapters, OwnTensorsOfAPartitionAddUpToTheFile) {
    for (const std::string & path : { tiny_v4(), tiny_llama(), tiny_qwen3(), tiny_gemma3() }) {
        const GgufFile file(path);
        const uint32_t n_layer = make_adapter(file)->facts().n_layer;
        uint64_t       whole   = 0;
        for (const GgufTensor & tensor : file.tensors()) {
            whole += tensor.size;
        }
        EXPECT_EQ(own_tensors(file, { 0, n_layer }, n_layer, false), whole);

        const bool tied = !file.has_tensor("output.weight");
        for (uint32_t cut = 1; cut < n_layer; cut++) {
            for (const GgufTensor & tensor : file.tensors()) {
                const int owners = int(is_own_tensor(tensor.name, { 0, cut }, n_layer, tied)) +
                                   int(is_own_tensor(tensor.name, { cut, n_layer }, n_layer, tied));
                const bool shared = tensor.name.rfind("rope_", 0) == 0 || (tied && tensor.name == "token_embd.weight");
                EXPECT_EQ(owners, shared ? 2 : 1) << tensor.name << " at cut " << cut;
            }
        }
    }
}

TEST(Adapters, TextRoundTripsThroughTheTokenizer) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.range             = { 20, 21 };
    const auto engine        = make_llama_engine(params);
    for (const std::string text : { "Hello, world", "Grüße, 世界 🙂", "", "a\nb\tc", "   " }) {
        const auto ids = engine->tokenize(text, false, false);
        EXPECT_EQ(engine->detokenize(ids, false, false), text);
    }
    EXPECT_THROW(engine->detokenize({ 1 << 30 }, false, false), InvalidFrame);
    EXPECT_THROW(engine->detokenize({ -1 }, false, false), InvalidFrame);
}

}  // namespace dgr::testing

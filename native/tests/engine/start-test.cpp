// What an engine refuses to start with: the reason and the legal choices, never a dead process.

#include "parity.h"

#include "ggml-cpp.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace dgr::testing {

namespace fs = std::filesystem;

namespace {

struct Refused {
    StartError::Kind kind = StartError::Kind::failed;
    std::string      text = "accepted";
};

Refused refused(const LlamaEngineParams & params) {
    try {
        make_llama_engine(params);
    } catch (const StartError & error) {
        return { error.kind, error.what() };
    }
    return {};
}

bool mentions(const Refused & result, const std::string & part) {
    return result.text.find(part) != std::string::npos;
}

class Start : public ::testing::Test {
protected:
    void SetUp() override {
        folder = fs::path(::testing::TempDir()) / ("dgr-start-" + std::to_string(getpid()));
        fs::create_directories(folder);
        params = default_params(tiny_v4());
    }

    void TearDown() override { fs::remove_all(folder); }

    // A tiny model's metadata, changed, without tensor data.
    std::string metadata_only(const std::function<void(gguf_context *)> & change,
                              const std::string & model = tiny_v4()) {
        const gguf_context_ptr context(gguf_init_from_file(model.c_str(), { true, nullptr }));
        const gguf_context_ptr fresh(gguf_init_empty());
        gguf_set_kv(fresh.get(), context.get());
        change(fresh.get());
        const std::string path = folder / "changed.gguf";
        gguf_write_to_file(fresh.get(), path.c_str(), true);
        return path;
    }

    std::string first_bytes(uintmax_t size) {
        const std::string path = folder / ("cut-" + std::to_string(size) + ".gguf");
        fs::copy_file(tiny_v4(), path, fs::copy_options::overwrite_existing);
        fs::resize_file(path, size);
        return path;
    }

    fs::path          folder;
    LlamaEngineParams params;
};

using Kind = StartError::Kind;

}  // namespace

TEST_F(Start, RangesOutsideTheModelAreRefusedWithTheLegalCuts) {
    for (const LayerRange range : { LayerRange{ 5, 5 }, LayerRange{ 6, 5 }, LayerRange{ 0, 44 }, LayerRange{ 43, 44 },
                                    LayerRange{ 43, 0 }, LayerRange{ 44, 0 }, LayerRange{ 0, UINT32_MAX },
                                    LayerRange{ UINT32_MAX, 43 } }) {
        params.range      = range;
        const auto result = refused(params);
        SCOPED_TRACE(result.text);
        EXPECT_EQ(result.kind, Kind::settings);
        EXPECT_TRUE(mentions(result, "legal cuts are 1 to 42"));
    }
}

TEST_F(Start, CacheTypesThatV4CannotKeepAreRefused) {
    params.type_k = "f32";
    auto result   = refused(params);
    EXPECT_EQ(result.kind, Kind::settings);
    EXPECT_TRUE(mentions(result, "must be equal")) << result.text;

    params.type_k = params.type_v = "q8_0";
    result                        = refused(params);
    EXPECT_EQ(result.kind, Kind::settings);
    EXPECT_TRUE(mentions(result, "flash attention")) << result.text;

    params.type_k = params.type_v = "q4_K";
    result                        = refused(params);
    EXPECT_EQ(result.kind, Kind::settings);
    EXPECT_TRUE(mentions(result, "choose one of f16")) << result.text;
}

TEST_F(Start, SlotsRowsAndThreadsOutOfBoundsAreRefused) {
    const std::vector<std::function<void(LlamaEngineParams &)>> cases = {
        [](LlamaEngineParams & p) { p.slot_classes = {}; },
        [](LlamaEngineParams & p) { p.slot_classes = { { 0, 512 } }; },
        [](LlamaEngineParams & p) { p.slot_classes = { { 257, 512 } }; },
        [](LlamaEngineParams & p) { p.slot_classes = { { 1, 0 } }; },
        [](LlamaEngineParams & p) { p.slot_classes = { { 1, UINT32_MAX } }; },
        [](LlamaEngineParams & p) { p.slot_classes = { { 1, 512 }, { 1, 65537 } }; },
        [](LlamaEngineParams & p) { p.n_ubatch = 0; },
        [](LlamaEngineParams & p) { p.n_ubatch = UINT32_MAX; },
        [](LlamaEngineParams & p) { p.n_threads = 0; },
        [](LlamaEngineParams & p) { p.n_threads_batch = 100000; },
    };
    for (size_t i = 0; i < cases.size(); i++) {
        LlamaEngineParams bad = params;
        cases[i](bad);
        const auto result = refused(bad);
        EXPECT_EQ(result.kind, Kind::settings) << i << ": " << result.text;
    }
}

TEST_F(Start, MoreMemoryThanThereIsIsRefusedBeforeItIsTaken) {
    params.slot_classes.assign(4000, { 256, 65536 });
    const auto result = refused(params);
    EXPECT_EQ(result.kind, Kind::memory) << result.text;
    EXPECT_TRUE(mentions(result, "fewer slots")) << result.text;
}

TEST_F(Start, BrokenFilesAreNamed) {
    const auto size = fs::file_size(tiny_v4());
    std::ofstream(folder / "text.gguf") << "this is no model";
    fs::create_directories(folder / "folder.gguf");

    for (const std::string & path : { (folder / "missing.gguf").string(), (folder / "text.gguf").string(),
                                    (folder / "folder.gguf").string(), first_bytes(0), first_bytes(3), first_bytes(100),
                                    first_bytes(5000), first_bytes(size / 2), first_bytes(size - 1) }) {
        params.model_path = path;
        const auto result = refused(params);
        EXPECT_EQ(result.kind, Kind::artifact) << result.text;
        EXPECT_TRUE(mentions(result, path)) << result.text;
    }
}

TEST_F(Start, AForeignTensorCutOffIsNoticedToo) {
    params.model_path = first_bytes(fs::file_size(tiny_v4()) - 4096);
    params.range      = { 0, 1 };
    EXPECT_EQ(refused(params).kind, Kind::artifact);
}

TEST_F(Start, ArchitecturesWithoutAnAdapterAreRefusedWithTheOnesThereAre) {
    params.model_path = metadata_only([](gguf_context * c) { gguf_set_val_str(c, "general.architecture", "gpt2"); });
    const auto result = refused(params);
    EXPECT_EQ(result.kind, Kind::artifact);
    EXPECT_TRUE(mentions(result, "gpt2") && mentions(result, "deepseek4, llama, qwen3 and gemma3"))
        << result.text;
}

TEST_F(Start, MetadataThatContradictsItselfIsRefused) {
    const std::vector<std::function<void(gguf_context *)>> cases = {
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.block_count", 0); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.nextn_predict_layers", 44); },
        [](gguf_context * c) { gguf_set_val_str(c, "deepseek4.block_count", "44"); },
        [](gguf_context * c) { gguf_set_val_f32(c, "deepseek4.block_count", 44.0F); },
        [](gguf_context * c) { gguf_set_val_i32(c, "deepseek4.block_count", -1); },
        [](gguf_context * c) { gguf_remove_key(c, "deepseek4.block_count"); },
        [](gguf_context * c) { gguf_remove_key(c, "deepseek4.attention.compress_ratios"); },
        [](gguf_context * c) { gguf_remove_key(c, "general.architecture"); },
        [](gguf_context * c) { gguf_set_val_u32(c, "general.architecture", 4); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.hyper_connection.count", 0); },
        [](gguf_context * c) { gguf_set_val_u16(c, "split.count", 3); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.block_count", 513); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.expert_used_count", 9); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.expert_count", 0); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.attention.key_length", 64); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.attention.indexer.key_length", 32); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.rope.dimension_count", 256); },
        [](gguf_context * c) { gguf_set_val_u32(c, "deepseek4.hyper_connection.sinkhorn_iterations", 0); },
        [](gguf_context * c) {
            const char * twice[] = { "a", "b", "a" };
            gguf_set_arr_str(c, "tokenizer.ggml.tokens", twice, 3);
        },
        // names an MTP block whose tensors are not there: upstream would run it as a main layer
        [](gguf_context *) {},
    };
    for (size_t i = 0; i < cases.size(); i++) {
        params.model_path = metadata_only(cases[i]);
        const auto result = refused(params);
        EXPECT_EQ(result.kind, Kind::artifact) << i << ": " << result.text;
        EXPECT_TRUE(mentions(result, params.model_path)) << i << ": " << result.text;
    }
}

// What their graphs would assert.
TEST_F(Start, HeadsAndWindowsThatTheGraphsCannotRunAreRefused) {
    struct Case {
        std::string                         model;
        std::function<void(gguf_context *)> change;
        const char *                        named;
    };
    const std::vector<Case> cases = {
        { tiny_qwen3(), [](gguf_context * c) { gguf_set_val_u32(c, "qwen3.rope.dimension_count", 32); },
          "rope.dimension_count" },
        { tiny_qwen3(), [](gguf_context * c) { gguf_set_val_u32(c, "qwen3.attention.value_length", 32); },
          "value_length" },
        { tiny_qwen3(),
          [](gguf_context * c) {
              const uint32_t heads[] = { 2, 2, 2, 2, 1, 2, 2, 2 };
              gguf_set_arr_data(c, "qwen3.attention.head_count_kv", GGUF_TYPE_UINT32, heads, 8);
          },
          "same number of heads" },
        { tiny_gemma3(), [](gguf_context * c) { gguf_set_val_u32(c, "gemma3.attention.key_length_swa", 32); },
          "key_length_swa" },
        { tiny_gemma3(), [](gguf_context * c) { gguf_set_val_u32(c, "gemma3.attention.sliding_window_pattern", 1); },
          "no layer has one" },
        { tiny_gemma3(),
          [](gguf_context * c) {
              const int8_t none[12] = {};
              gguf_set_arr_data(c, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, none, 12);
          },
          "no layer has one" },
    };
    for (const Case & one : cases) {
        params.model_path = metadata_only(one.change, one.model);
        const auto result = refused(params);
        EXPECT_EQ(result.kind, Kind::artifact) << one.named << ": " << result.text;
        EXPECT_TRUE(mentions(result, one.named)) << result.text;
    }
}

}  // namespace dgr::testing

// Engines on the patched library against the reference program on the unmodified one.

#include "parity.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

extern char ** environ;

namespace dgr::testing {

namespace fs = std::filesystem;

namespace {

class Reference : public ::testing::Test {
protected:
    void SetUp() override {
        const char * path = std::getenv("DGR_REFERENCE");
        ASSERT_NE(path, nullptr) << "DGR_REFERENCE must name the built reference program";
        program = path;
        folder  = fs::path(::testing::TempDir()) / ("dgr-reference-" + std::to_string(getpid()));
        fs::create_directories(folder);
    }

    void TearDown() override { fs::remove_all(folder); }

    std::vector<float> run(const LlamaEngineParams & params, const std::vector<int32_t> & prompt, int n_decode) {
        const std::string tokens = folder / "tokens";
        const std::string logits = folder / "logits";
        std::ofstream(tokens, std::ios::binary)
            .write(reinterpret_cast<const char *>(prompt.data()), static_cast<std::streamsize>(prompt.size() * 4));

        std::vector<std::string> words = {
            program, "--model", params.model_path, "--tokens", tokens, "--logits", logits,
            "--n-prompt", std::to_string(prompt.size()), "--n-decode", std::to_string(n_decode),
            "--n-ubatch", std::to_string(params.n_ubatch), "--n-ctx", std::to_string(params.slot_classes[0].n_ctx),
            "--n-seq-max", std::to_string(params.slot_classes[0].slots), "--threads", std::to_string(params.n_threads),
            "--threads-batch", std::to_string(params.n_threads_batch), "--flash-attn", params.flash_attn ? "on" : "off",
            "--type-k", params.type_k, "--type-v", params.type_v, "--json",
        };
        std::vector<char *> argv;
        for (std::string & word : words) {
            argv.push_back(word.data());
        }
        argv.push_back(nullptr);

        pid_t pid    = 0;
        int   status = -1;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);

        std::vector<float> values(fs::file_size(logits) / sizeof(float));
        std::ifstream(logits, std::ios::binary)
            .read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
        return values;
    }

    std::string program;
    fs::path    folder;
};

}  // namespace

TEST_F(Reference, V4WholeAndSplitGiveTheBytesOfTheBaseLibrary) {
    const auto prompt = make_prompt(300);
    for (const uint32_t n_ubatch : { 64, 512, 17 }) {
        SCOPED_TRACE(n_ubatch);
        LlamaEngineParams params = default_params(tiny_v4());
        params.n_ubatch          = n_ubatch;
        const int  n_decode      = n_ubatch == 64 ? 40 : 8;
        const auto expected      = run(params, prompt, n_decode);
        EXPECT_TRUE(same_bytes(expected, whole_trace(params, prompt, n_decode).logits));
        EXPECT_TRUE(same_bytes(expected, Chain(params, { 1, 2, 21, 41 }).generate(prompt, n_decode).logits));
    }
}

TEST_F(Reference, V4PromptsAroundTheHcaBlock) {
    for (const size_t n : { 127, 128, 129, 130 }) {
        SCOPED_TRACE(n);
        const LlamaEngineParams params = default_params(tiny_v4());
        const auto              prompt = make_prompt(n);
        EXPECT_TRUE(same_bytes(run(params, prompt, 6), Chain(params, { 3, 22 }).generate(prompt, 6).logits));
    }
}

TEST_F(Reference, V4WithFlashAttentionAndSeveralSlots) {
    LlamaEngineParams params = default_params(tiny_v4());
    params.flash_attn        = true;
    const auto prompt        = make_prompt(130);
    const auto expected      = run(params, prompt, 6);
    params.slot_classes      = { { 3, 512 } };
    Chain          chain(params, { 21 });
    Chain::Session first(chain, 512);
    Chain::Session second(chain, 512);
    EXPECT_TRUE(same_bytes(expected, second.generate(prompt, 6).logits));
}

TEST_F(Reference, Qwen3WholeAndSplitGiveTheBytesOfTheBaseLibrary) {
    for (const uint32_t n_ubatch : { 64, 17 }) {
        SCOPED_TRACE(n_ubatch);
        LlamaEngineParams params = default_params(tiny_qwen3());
        params.n_ubatch          = n_ubatch;
        const auto prompt        = make_prompt(130);
        const auto expected      = run(params, prompt, 10);
        EXPECT_TRUE(same_bytes(expected, whole_trace(params, prompt, 10).logits));
        EXPECT_TRUE(same_bytes(expected, Chain(params, { 1, 4 }).generate(prompt, 10).logits));
    }
}

TEST_F(Reference, Gemma3WholeAndSplitGiveTheBytesOfTheBaseLibrary) {
    const auto prompt = make_prompt(300);
    for (const uint32_t n_ubatch : { 64, 512, 17 }) {
        SCOPED_TRACE(n_ubatch);
        LlamaEngineParams params = default_params(tiny_gemma3());
        params.n_ubatch          = n_ubatch;
        const auto expected      = run(params, prompt, 10);
        EXPECT_TRUE(same_bytes(expected, whole_trace(params, prompt, 10).logits));
        EXPECT_TRUE(same_bytes(expected, Chain(params, { 1, 5, 6, 11 }).generate(prompt, 10).logits));
    }
}

TEST_F(Reference, LlamaWholeAndSplitGiveTheBytesOfTheBaseLibrary) {
    const LlamaEngineParams params   = default_params(tiny_llama());
    const auto              prompt   = make_prompt(130);
    const auto              expected = run(params, prompt, 10);
    EXPECT_TRUE(same_bytes(expected, whole_trace(params, prompt, 10).logits));
    EXPECT_TRUE(same_bytes(expected, Chain(params, { 1 }).generate(prompt, 10).logits));
}

TEST_F(Reference, AnotherPromptGivesOtherBytes) {
    const LlamaEngineParams params = default_params(tiny_v4());
    const auto              expected = run(params, make_prompt(40, 2), 0);
    EXPECT_FALSE(same_bytes(expected, Chain(params, { 21 }).generate(make_prompt(40, 3), 0).logits));
}

}  // namespace dgr::testing

// Runs prompts through chains of engines in one process and keeps what came out, for comparison as bytes.

#pragma once

#include "dgr/shard-engine.h"

#include "llama-engine.h"

#include <memory>
#include <string>
#include <vector>

namespace dgr::testing {

// Path of a tiny model, from DGR_TINY_V4, _LLAMA, _QWEN3 or _GEMMA3. Throws when unset: such a test must fail.
std::string tiny_v4();
std::string tiny_llama();
std::string tiny_qwen3();
std::string tiny_gemma3();

// One thread, flash attention off, f16 cache, one slot of 512 positions, frames of 64 rows.
LlamaEngineParams default_params(const std::string & model);

// Whether this build computes on the CPU. What overflows inside a stage can end the process elsewhere: see finite.h.
bool on_cpu();

// Ids of plain tokens, the same for a seed everywhere.
std::vector<int32_t> make_prompt(size_t n, uint32_t seed = 1);

struct Trace {
    std::vector<float>   logits;  // [rows, n_vocab]: every prompt row, then one row a decode step
    std::vector<int32_t> tokens;  // greedy choice after the prompt and after each step
};

// Consecutive stages over one model.
class Chain {
public:
    // `cuts` ascending; empty is the whole model. Ranges of `params` are ignored.
    Chain(const LlamaEngineParams & params, const std::vector<uint32_t> & cuts);

    // Opens a slot on every stage; closes it when it dies.
    class Session {
    public:
        Session(Chain & session_chain, uint32_t n_ctx);
        ~Session();
        Session(const Session &)             = delete;
        Session & operator=(const Session &) = delete;

        // One frame through all stages, logits of all rows wanted.
        EngineOutput execute(const std::vector<int32_t> & ids);

        // The prompt in frames of n_ubatch rows, then greedy steps.
        Trace generate(const std::vector<int32_t> & prompt, int n_decode);

        uint32_t                     position = 0;
        const std::vector<int32_t> & slots() const { return stage_slots; }

    private:
        Chain &              chain;
        std::vector<int32_t> stage_slots;
    };

    Trace generate(const std::vector<int32_t> & prompt, int n_decode);

    ShardEngine & stage(size_t i) { return *stages[i]; }
    size_t        size() const { return stages.size(); }

private:
    std::vector<std::unique_ptr<ShardEngine>> stages;
};

// The trace of a session that has a fresh chain of these cuts to itself, computed once a process for equal arguments.
// What a test says about sessions beside or before each other is held against this: it is exact on every device,
// while a split model and a whole one agree in their bytes on the CPU lane only.
const Trace & solo_trace(const LlamaEngineParams & params, const std::vector<uint32_t> & cuts,
                         const std::vector<int32_t> & prompt, int n_decode);

// The same for the whole model.
const Trace & whole_trace(const LlamaEngineParams & params, const std::vector<int32_t> & prompt, int n_decode);

// Bytes equal, in number too.
bool same_bytes(const std::vector<float> & a, const std::vector<float> & b);

// Fails unless the logits are finite and not all alike.
void expect_meaningful(const Trace & trace);

}  // namespace dgr::testing

// A ShardEngine on the patched llama.cpp: one model, one context for each slot class, one sequence a slot.

#pragma once

#include "dgr/shard-engine.h"

#include "finite.h"

#include <memory>
#include <string>
#include <vector>

namespace dgr {

struct LlamaEngineParams {
    std::string model_path;  // a GGUF, or the first part of a split one

    LayerRange             range;         // last = 0 stands for the end
    std::vector<SlotClass> slot_classes;  // each takes its memory at load

    std::string device = "auto";  // see devices.h

    uint32_t n_ubatch        = 512;  // rows a frame at most
    uint32_t n_threads       = 1;    // for frames of one row
    uint32_t n_threads_batch = 1;    // for longer frames

    bool        flash_attn = false;
    std::string type_k     = "f16";
    std::string type_v     = "f16";

    bool use_mmap     = true;  // where the CPU computes; weights that go to a device are read, not mapped
    bool check_finite = true;  // refuse boundary values, and fail on results, that are not finite or above the limit
    float boundary_limit = BOUNDARY_LIMIT;  // largest magnitude of a boundary value, see finite.h

    std::string isa;  // of this build; only reported
};

// Loads the range, reserves everything that the largest frame needs and runs one to prove it.
// Throws StartError.
std::unique_ptr<ShardEngine> make_llama_engine(const LlamaEngineParams & params);

}  // namespace dgr

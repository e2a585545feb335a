// How the engine asks upstream for a model and its contexts, and what it checks before.

#pragma once

#include "adapter.h"
#include "llama-engine.h"

#include "ggml-cpu.h"
#include "llama-cpp.h"

#include <memory>

namespace dgr {

struct ThreadpoolDeleter {
    void operator()(ggml_threadpool * pool) const { ggml_threadpool_free(pool); }
};
using ThreadpoolPtr = std::unique_ptr<ggml_threadpool, ThreadpoolDeleter>;

// The parameters in upstream's terms. Throws StartError (settings).
CacheSettings cache_settings(const LlamaEngineParams & params);

// Rows, threads, slots and contexts that can be served at all. Throws StartError (settings).
void check_settings(const LlamaEngineParams & params, const Adapter & adapter);

// Weighs the cache of all slots, and the weights when they are copied, against the memory at hand.
// Throws StartError (memory): an allocation that is granted and then cannot be filled kills the process.
void check_memory(const LlamaEngineParams & params, const Adapter & adapter, uint64_t own_tensor_bytes);

llama_context_params context_params(const LlamaEngineParams & params, const SlotClass & slot_class, bool is_tail);

// Throws StartError.
llama_model_ptr   load_model(const LlamaEngineParams & params, uint32_t n_layer);
ThreadpoolPtr     make_threadpool(const LlamaEngineParams & params);
llama_context_ptr make_context(llama_model * model, const LlamaEngineParams & params, const SlotClass & slot_class,
                               bool is_tail, ggml_threadpool * pool);

// Reads the tensors of the range into the page cache, so that the first frames do not wait for the disk.
// Returns the bytes of these tensors; touches the disk only when `read` is set.
uint64_t own_tensors(const GgufFile & file, const LayerRange & range, uint32_t n_layer, bool read);

}  // namespace dgr

#include "llama-setup.h"

#include "devices.h"
#include "upstream-log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <sstream>

namespace dgr {

namespace {

constexpr uint32_t MAX_ROWS    = 65536;
constexpr uint32_t MAX_THREADS = 512;  // GGML_MAX_N_THREADS

[[noreturn]] void refuse(const std::string & reason) {
    throw StartError(StartError::Kind::settings, reason);
}

std::string mebibytes(uint64_t bytes) {
    return std::to_string((bytes + (1U << 20) - 1) >> 20) + " MiB";
}

// Memory that can be had without swapping; the smaller of the machine's and the control group's. 0: unknown.
uint64_t available_memory() {
    uint64_t available = 0;

    std::ifstream meminfo("/proc/meminfo");
    for (std::string line; std::getline(meminfo, line);) {
        std::istringstream words(line);
        std::string        key;
        uint64_t           kib = 0;
        if (words >> key >> kib && key == "MemAvailable:") {
            available = kib * 1024;
        }
    }

    uint64_t limit = 0;
    uint64_t used  = 0;
    if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
        const uint64_t rest = limit > used ? limit - used : 0;
        available           = available == 0 ? rest : std::min(available, rest);
    }
    return available;
}

bool is_out_of_memory(const std::string & line) {
    return line.find("allocate") != std::string::npos || line.find("out of memory") != std::string::npos;
}

StartError upstream_failure(const std::string & what, StartError::Kind otherwise) {
    const std::string cause = upstream_error("no reason given");
    return { is_out_of_memory(cause) ? StartError::Kind::memory : otherwise, what + ": " + cause };
}

void read_range(int file, uint64_t begin, uint64_t end, std::vector<char> & buffer) {
    while (begin < end) {
        const size_t  wanted = std::min<uint64_t>(buffer.size(), end - begin);
        const ssize_t got    = pread(file, buffer.data(), wanted, static_cast<off_t>(begin));
        if (got <= 0) {
            return;  // only a prefetch: the mapping will meet the error again and report it
        }
        begin += static_cast<uint64_t>(got);
    }
}

}  // namespace

CacheSettings cache_settings(const LlamaEngineParams & params) {
    CacheSettings settings;
    settings.type_k     = parse_cache_type(params.type_k, "type_k");
    settings.type_v     = parse_cache_type(params.type_v, "type_v");
    settings.flash_attn = params.flash_attn;
    settings.n_ubatch   = params.n_ubatch;
    return settings;
}

void check_settings(const LlamaEngineParams & params, const Adapter & adapter) {
    if (params.n_ubatch == 0 || params.n_ubatch > MAX_ROWS) {
        refuse("n_ubatch " + std::to_string(params.n_ubatch) + " is not within 1 to " + std::to_string(MAX_ROWS));
    }
    for (const uint32_t n : { params.n_threads, params.n_threads_batch }) {
        if (n == 0 || n > MAX_THREADS) {
            refuse(std::to_string(n) + " threads are not within 1 to " + std::to_string(MAX_THREADS));
        }
    }

    if (params.slot_classes.empty()) {
        refuse("no slots; give at least one class of slots");
    }
    for (const SlotClass & slots : params.slot_classes) {
        if (slots.slots == 0 || slots.slots > llama_max_parallel_sequences()) {
            refuse(std::to_string(slots.slots) + " slots of one class are not within 1 to " +
                   std::to_string(llama_max_parallel_sequences()));
        }
        if (slots.n_ctx == 0 || slots.n_ctx > adapter.facts().n_ctx_train) {
            refuse("a context of " + std::to_string(slots.n_ctx) + " positions is not within 1 to " +
                   std::to_string(adapter.facts().n_ctx_train) + ", what the model was made for");
        }
        const uint64_t total = static_cast<uint64_t>(slots.slots) * padded_positions(slots.n_ctx);
        if (total > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
            refuse(std::to_string(slots.slots) + " slots of " + std::to_string(slots.n_ctx) +
                   " positions are more than one class can hold; take fewer slots");
        }
    }
    adapter.check_cache(cache_settings(params));
}

void check_memory(const LlamaEngineParams & params, const Adapter & adapter, uint64_t own_tensor_bytes) {
    const ggml_backend_dev_t device = find_device(params.device);
    const bool               copied = !params.use_mmap || !is_cpu(device);  // weights move to a device

    uint64_t needed = copied ? own_tensor_bytes : 0;
    for (const StateLayout & kind : adapter.state(params.range, cache_settings(params))) {
        for (const SlotClass & slots : params.slot_classes) {
            needed += slots.slots * kind.slot_bytes(slots.n_ctx);
        }
    }
    uint64_t available = available_memory();
    if (!is_cpu(device)) {
        size_t free = 0;
        size_t total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        available = free;
    }
    if (available > 0 && needed > available) {
        throw StartError(StartError::Kind::memory,
                         "the slots" + std::string(copied ? " and weights" : "") + " of this range need " +
                             mebibytes(needed) + " but only " + mebibytes(available) + " are free on " +
                             ggml_backend_dev_name(device) +
                             "; take fewer slots, a shorter context or fewer layers");
    }
}

llama_context_params context_params(const LlamaEngineParams & params, const SlotClass & slot_class, bool is_tail) {
    const CacheSettings settings = cache_settings(params);

    llama_context_params result = llama_context_default_params();
    result.n_ctx           = slot_class.slots * padded_positions(slot_class.n_ctx);
    result.n_batch         = params.n_ubatch;
    result.n_ubatch        = params.n_ubatch;
    result.n_seq_max       = slot_class.slots;
    result.n_threads       = static_cast<int32_t>(params.n_threads);
    result.n_threads_batch = static_cast<int32_t>(params.n_threads_batch);
    result.flash_attn_type = params.flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    result.type_k          = settings.type_k;
    result.type_v          = settings.type_v;
    result.kv_unified      = false;
    result.swa_full        = false;
    result.offload_kqv     = !is_cpu(find_device(params.device));
    result.op_offload      = false;
    result.no_perf         = true;
    result.embeddings      = !is_tail;
    if (!is_tail) {
        result.pooling_type = LLAMA_POOLING_TYPE_NONE;
    }
    return result;
}

llama_model_ptr load_model(const LlamaEngineParams & params, uint32_t n_layer) {
    static std::once_flag once;
    std::call_once(once, llama_backend_init);

    const ggml_backend_dev_t device    = find_device(params.device);
    ggml_backend_dev_t       devices[] = { is_cpu(device) ? nullptr : device, nullptr };

    llama_model_params wanted = llama_model_default_params();
    wanted.devices         = devices;
    wanted.n_gpu_layers    = is_cpu(device) ? 0 : static_cast<int32_t>(n_layer) + 1;  // and the output
    wanted.split_mode      = LLAMA_SPLIT_MODE_NONE;
    wanted.main_gpu        = 0;
    wanted.load_mode       = params.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    wanted.use_extra_bufts = false;
    wanted.layer_first     = static_cast<int32_t>(params.range.first);
    wanted.layer_last      = params.range.last == n_layer ? -1 : static_cast<int32_t>(params.range.last);

    forget_upstream_error();
    try {
        llama_model_ptr model(llama_model_load_from_file(params.model_path.c_str(), wanted));
        if (model) {
            return model;
        }
    } catch (const std::bad_alloc &) {
        throw StartError(StartError::Kind::memory, params.model_path + ": out of memory while loading");
    } catch (const std::exception & error) {
        throw StartError(StartError::Kind::artifact, params.model_path + ": " + error.what());
    }
    throw upstream_failure(params.model_path + ": cannot be loaded", StartError::Kind::artifact);
}

ThreadpoolPtr make_threadpool(const LlamaEngineParams & params) {
    const auto n_threads = static_cast<int>(std::max(params.n_threads, params.n_threads_batch));

    ggml_threadpool_params wanted = ggml_threadpool_params_default(n_threads);
    ThreadpoolPtr          pool(ggml_threadpool_new(&wanted));
    if (!pool) {
        throw StartError(StartError::Kind::failed, "cannot start " + std::to_string(n_threads) + " compute threads");
    }
    return pool;
}

llama_context_ptr make_context(llama_model * model, const LlamaEngineParams & params, const SlotClass & slot_class,
                               bool is_tail, ggml_threadpool * pool) {
    const std::string what = std::to_string(slot_class.slots) + " slots of " + std::to_string(slot_class.n_ctx) +
                             " positions cannot be made";

    forget_upstream_error();
    llama_context_ptr context;
    try {
        context.reset(llama_init_from_model(model, context_params(params, slot_class, is_tail)));
    } catch (const std::bad_alloc &) {
        throw StartError(StartError::Kind::memory, what + ": out of memory");
    } catch (const std::exception & error) {
        throw StartError(is_out_of_memory(error.what()) ? StartError::Kind::memory : StartError::Kind::failed,
                         what + ": " + error.what());
    }
    if (!context) {
        throw upstream_failure(what, StartError::Kind::failed);
    }
    llama_attach_threadpool(context.get(), pool, pool);
    return context;
}

uint64_t own_tensors(const GgufFile & file, const LayerRange & range, uint32_t n_layer, bool read) {
    const bool tied = !file.has_tensor("output.weight");

    uint64_t                                         total = 0;
    std::map<uint32_t, std::map<uint64_t, uint64_t>> ranges;  // part -> begin -> end
    for (const GgufTensor & tensor : file.tensors()) {
        if (is_own_tensor(tensor.name, range, n_layer, tied)) {
            total += tensor.size;
            ranges[tensor.part][tensor.offset] = tensor.offset + tensor.size;
        }
    }
    if (!read) {
        return total;
    }

    std::vector<char> buffer(size_t(1) << 20);
    for (const auto & [part, spans] : ranges) {
        const int fd = open(file.parts()[part].c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        // exactly these bytes: no readahead into the neighbours
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        for (const auto & [begin, end] : spans) {
            read_range(fd, begin, end, buffer);
        }
        close(fd);
    }
    return total;
}

}  // namespace dgr

// Runs a whole model on the unmodified llama.cpp and writes its logits: what every route is compared with.
//
// The prompt is decoded in frames of n_ubatch rows with logits for all of them, then n_decode greedy steps of
// one row. Every setting that decides bits is spelled out and equals the worker's.

#include "ggml-cpu.h"
#include "llama-cpp.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Options {
    std::string model;
    std::string tokens;
    std::string logits;
    std::string type_k = "f16";
    std::string type_v = "f16";

    int  n_prompt        = -1;  // -1: all tokens of the file
    int  n_decode        = 0;
    int  n_ubatch        = 512;
    int  n_ctx           = 512;  // of one sequence
    int  n_seq_max       = 1;
    int  n_threads       = 1;
    int  n_threads_batch = 1;
    bool flash_attn      = false;
    bool use_mmap        = true;
    bool json            = false;
};

constexpr const char * USAGE =
    "usage: dgr-reference --model FILE --tokens FILE [--n-prompt N] [--n-decode N] [--n-ubatch N] [--n-ctx N]\n"
    "                     [--n-seq-max N] [--threads N] [--threads-batch N] [--flash-attn on|off]\n"
    "                     [--type-k T] [--type-v T] [--no-mmap] [--logits FILE] [--json]\n"
    "\n"
    "  --tokens FILE   token ids, 32-bit little endian; the first --n-prompt of them are the prompt\n"
    "  --logits FILE   float32 little endian, [rows, n_vocab]: every prompt row, then one row a decode step\n"
    "  --json          result as JSON: tokens (greedy, after the prompt and after each step) and timings\n";

int parse_int(const std::string & name, const std::string & text, int smallest) {
    char *     end   = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < smallest || value > INT32_MAX) {
        throw UsageError(name + " takes a whole number of at least " + std::to_string(smallest) + ", not '" + text + "'");
    }
    return static_cast<int>(value);
}

Options parse_options(int argc, char ** argv) {
    Options options;
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--json") {
            options.json = true;
            continue;
        }
        if (name == "--no-mmap") {
            options.use_mmap = false;
            continue;
        }
        if (i + 1 >= argc) {
            throw UsageError(name + " is unknown or lacks its value");
        }
        const std::string value = argv[++i];
        if (name == "--model") {
            options.model = value;
        } else if (name == "--tokens") {
            options.tokens = value;
        } else if (name == "--logits") {
            options.logits = value;
        } else if (name == "--n-prompt") {
            options.n_prompt = parse_int(name, value, 1);
        } else if (name == "--n-decode") {
            options.n_decode = parse_int(name, value, 0);
        } else if (name == "--n-ubatch") {
            options.n_ubatch = parse_int(name, value, 1);
        } else if (name == "--n-ctx") {
            options.n_ctx = parse_int(name, value, 1);
        } else if (name == "--n-seq-max") {
            options.n_seq_max = parse_int(name, value, 1);
        } else if (name == "--threads") {
            options.n_threads = parse_int(name, value, 1);
        } else if (name == "--threads-batch") {
            options.n_threads_batch = parse_int(name, value, 1);
        } else if (name == "--flash-attn" && (value == "on" || value == "off")) {
            options.flash_attn = value == "on";
        } else if (name == "--type-k") {
            options.type_k = value;
        } else if (name == "--type-v") {
            options.type_v = value;
        } else {
            throw UsageError(name + " " + value + " is not understood");
        }
    }
    if (options.model.empty() || options.tokens.empty()) {
        throw UsageError("--model and --tokens are needed");
    }
    return options;
}

ggml_type parse_type(const std::string & name) {
    for (const ggml_type type : { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0 }) {
        if (name == ggml_type_name(type)) {
            return type;
        }
    }
    throw UsageError("cache type '" + name + "' is not one of f16, bf16, f32, q8_0");
}

std::vector<llama_token> read_tokens(const std::string & path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        throw std::runtime_error(path + ": cannot be read");
    }
    const auto size = static_cast<size_t>(file.tellg());
    if (size == 0 || size % sizeof(llama_token) != 0) {
        throw std::runtime_error(path + ": holds no whole 32-bit token ids");
    }
    std::vector<llama_token> tokens(size / sizeof(llama_token));
    file.seekg(0);
    file.read(reinterpret_cast<char *>(tokens.data()), static_cast<std::streamsize>(size));
    return tokens;
}

struct ThreadpoolDeleter {
    void operator()(ggml_threadpool * pool) const { ggml_threadpool_free(pool); }
};

struct Result {
    std::vector<llama_token> tokens;
    int64_t                  rows      = 0;
    int64_t                  prompt_us = 0;
    int64_t                  decode_us = 0;
};

class Reference {
public:
    explicit Reference(const Options & options) : n_ubatch(options.n_ubatch) {
        llama_backend_init();
        ggml_backend_dev_t no_devices[] = { nullptr };

        llama_model_params model_params = llama_model_default_params();
        model_params.devices         = no_devices;
        model_params.n_gpu_layers    = 0;
        model_params.load_mode       = options.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
        model_params.use_extra_bufts = false;
        model.reset(llama_model_load_from_file(options.model.c_str(), model_params));
        if (!model) {
            throw std::runtime_error(options.model + ": cannot be loaded");
        }
        vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));

        const int n_threads = std::max(options.n_threads, options.n_threads_batch);
        auto      wanted    = ggml_threadpool_params_default(n_threads);
        pool.reset(ggml_threadpool_new(&wanted));

        // upstream rounds each sequence up to a multiple of 256
        const int64_t n_ctx = (int64_t(options.n_ctx) + 255) / 256 * 256 * options.n_seq_max;
        if (n_ctx > INT32_MAX) {
            throw UsageError("--n-ctx times --n-seq-max is too large");
        }

        llama_context_params params = llama_context_default_params();
        params.n_ctx           = static_cast<uint32_t>(n_ctx);
        params.n_batch         = static_cast<uint32_t>(options.n_ubatch);
        params.n_ubatch        = static_cast<uint32_t>(options.n_ubatch);
        params.n_seq_max       = static_cast<uint32_t>(options.n_seq_max);
        params.n_threads       = options.n_threads;
        params.n_threads_batch = options.n_threads_batch;
        params.flash_attn_type = options.flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        params.type_k          = parse_type(options.type_k);
        params.type_v          = parse_type(options.type_v);
        params.kv_unified      = false;
        params.swa_full        = false;
        params.offload_kqv     = false;
        params.op_offload      = false;
        params.no_perf         = true;
        context.reset(llama_init_from_model(model.get(), params));
        if (!context) {
            throw std::runtime_error("the context cannot be made with these settings");
        }
        llama_attach_threadpool(context.get(), pool.get(), pool.get());
    }

    Result run(const std::vector<llama_token> & prompt, int n_decode, std::ofstream * logits_file) {
        Result result;

        const auto start = std::chrono::steady_clock::now();
        for (size_t first = 0; first < prompt.size(); first += static_cast<size_t>(n_ubatch)) {
            const size_t n = std::min(prompt.size() - first, static_cast<size_t>(n_ubatch));
            decode(prompt.data() + first, n, static_cast<llama_pos>(first), logits_file);
            result.rows += static_cast<int64_t>(n);
        }
        result.tokens.push_back(choice);
        const auto middle = std::chrono::steady_clock::now();

        for (int step = 0; step < n_decode; step++) {
            const llama_token token = result.tokens.back();
            decode(&token, 1, static_cast<llama_pos>(prompt.size()) + step, logits_file);
            result.rows++;
            result.tokens.push_back(choice);
        }
        const auto end = std::chrono::steady_clock::now();

        result.prompt_us = std::chrono::duration_cast<std::chrono::microseconds>(middle - start).count();
        result.decode_us = std::chrono::duration_cast<std::chrono::microseconds>(end - middle).count();
        return result;
    }

    int n_vocab() const { return vocab_size; }

private:
    // All rows of one frame; keeps the lowest of the most likely ids after the last row.
    void decode(const llama_token * tokens, size_t n, llama_pos first, std::ofstream * logits_file) {
        llama_seq_id                sequence = 0;
        std::vector<llama_token>    ids(tokens, tokens + n);
        std::vector<llama_pos>      positions(n);
        std::vector<int32_t>        n_sequences(n, 1);
        std::vector<llama_seq_id *> sequences(n, &sequence);
        std::vector<int8_t>         output(n, 1);
        for (size_t i = 0; i < n; i++) {
            positions[i] = first + static_cast<llama_pos>(i);
        }

        llama_batch batch{};
        batch.n_tokens = static_cast<int32_t>(n);
        batch.token    = ids.data();
        batch.pos      = positions.data();
        batch.n_seq_id = n_sequences.data();
        batch.seq_id   = sequences.data();
        batch.logits   = output.data();
        if (const int32_t code = llama_decode(context.get(), batch); code != 0) {
            throw std::runtime_error("llama_decode returned " + std::to_string(code) + " at position " +
                                     std::to_string(first));
        }

        const float * logits = llama_get_logits(context.get());
        const auto    width  = static_cast<size_t>(vocab_size);
        if (logits_file != nullptr) {
            logits_file->write(reinterpret_cast<const char *>(logits),
                               static_cast<std::streamsize>(n * width * sizeof(float)));
        }
        const float * last = logits + (n - 1) * width;
        choice             = static_cast<llama_token>(std::max_element(last, last + width) - last);
    }

    int         n_ubatch   = 0;
    int         vocab_size = 0;
    llama_token choice     = -1;

    llama_model_ptr                                     model;
    std::unique_ptr<ggml_threadpool, ThreadpoolDeleter> pool;
    llama_context_ptr                                   context;
};

void print_json(const Result & result, int n_vocab, int n_prompt) {
    std::printf("{\"tokens\": [");
    for (size_t i = 0; i < result.tokens.size(); i++) {
        std::printf("%s%d", i == 0 ? "" : ", ", result.tokens[i]);
    }
    std::printf("], \"n_vocab\": %d, \"n_prompt\": %d, \"rows\": %lld, \"prompt_us\": %lld, \"decode_us\": %lld}\n",
                n_vocab, n_prompt, static_cast<long long>(result.rows), static_cast<long long>(result.prompt_us),
                static_cast<long long>(result.decode_us));
}

void run(const Options & options) {
    std::vector<llama_token> prompt = read_tokens(options.tokens);
    if (options.n_prompt > 0) {
        if (static_cast<size_t>(options.n_prompt) > prompt.size()) {
            throw UsageError("--n-prompt " + std::to_string(options.n_prompt) + ": the file holds only " +
                             std::to_string(prompt.size()) + " token ids");
        }
        prompt.resize(static_cast<size_t>(options.n_prompt));
    }
    if (prompt.size() + static_cast<size_t>(options.n_decode) > static_cast<size_t>(options.n_ctx)) {
        throw UsageError("prompt and decode steps together need --n-ctx of at least " +
                         std::to_string(prompt.size() + static_cast<size_t>(options.n_decode)));
    }

    Reference reference(options);
    for (const llama_token id : prompt) {
        if (id < 0 || id >= reference.n_vocab()) {
            throw std::runtime_error(options.tokens + ": token id " + std::to_string(id) + " is not within 0 to " +
                                     std::to_string(reference.n_vocab() - 1));
        }
    }

    std::ofstream logits_file;
    if (!options.logits.empty()) {
        logits_file.open(options.logits, std::ios::binary | std::ios::trunc);
    }
    const Result result = reference.run(prompt, options.n_decode, options.logits.empty() ? nullptr : &logits_file);
    logits_file.close();
    if (!options.logits.empty() && !logits_file) {
        throw std::runtime_error(options.logits + ": cannot be written");
    }

    if (options.json) {
        print_json(result, reference.n_vocab(), static_cast<int>(prompt.size()));
        return;
    }
    for (const llama_token token : result.tokens) {
        std::printf("%d\n", token);
    }
}

void log_errors(ggml_log_level level, const char * text, void * /*user_data*/) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

// Switches of upstream's that change bits and that no numerics digest would show.
void ignore_upstream_switches() {
    for (const char * name : {"LLAMA_ATTN_ROT_DISABLE", "GGML_CPU_DISABLE_FUSION", "GGML_CPU_TILED_MM", "GGML_CPU_TILED_MM_FORCE"}) {
        unsetenv(name);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    ignore_upstream_switches();
    llama_log_set(log_errors, nullptr);
    try {
        if (argc > 1 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
            std::fputs(USAGE, stdout);
            return 0;
        }
        run(parse_options(argc, argv));
        return 0;
    } catch (const UsageError & error) {
        std::fprintf(stderr, "dgr-reference: %s\n%s", error.what(), USAGE);
        return 2;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "dgr-reference: %s\n", error.what());
        return 10;
    }
}

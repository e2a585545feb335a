#include "adapter.h"

#include <algorithm>
#include <array>

namespace dgr {

namespace {

constexpr uint64_t CELL_PADDING = 256;  // of every upstream cache
constexpr uint32_t MAX_BLOCKS   = 512;  // upstream's limits
constexpr uint32_t MAX_EXPERTS  = 1024;

constexpr std::array<ggml_type, 4> CACHE_TYPES = { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0 };

uint64_t padded(uint64_t value) {
    return (value + CELL_PADDING - 1) / CELL_PADDING * CELL_PADDING;
}

[[noreturn]] void refuse(const std::string & reason) {
    throw StartError(StartError::Kind::settings, reason);
}

}  // namespace

uint32_t padded_positions(uint32_t n_ctx) {
    return static_cast<uint32_t>(padded(n_ctx));
}

uint64_t StateLayout::slot_bytes(uint32_t n_ctx) const {
    uint64_t positions = padded(n_ctx);
    if (max_cells > 0) {
        positions = std::min<uint64_t>(positions, max_cells);
    }
    const uint64_t cells = cell_bytes > 0 ? padded((positions + ratio - 1) / ratio) : 0;
    return layers.size() * (layer_bytes + cells * cell_bytes);
}

StateKind StateLayout::describe(uint32_t n_ctx) const {
    StateKind kind;
    kind.name            = name;
    kind.layers          = layers;
    kind.bytes_per_token = max_cells > 0 ? 0 : layers.size() * cell_bytes / ratio;
    kind.fixed_bytes     = slot_bytes(n_ctx) - kind.bytes_per_token * n_ctx;
    return kind;
}

void Adapter::check_range(const LayerRange & range) const {
    const std::string wanted = "layer range [" + std::to_string(range.first) + ", " + std::to_string(range.last) + ")";
    const std::string end    = std::to_string(model.n_layer);
    const std::string legal  = model.n_layer > 1 ? "legal cuts are 1 to " + std::to_string(model.n_layer - 1)
                                                 : std::string("this model cannot be cut");

    if (range.last > model.n_layer) {
        refuse(wanted + " ends past the " + end + " main layers of this " + model.architecture + " model; " + legal +
               ", and " + end + " is the end" +
               (model.n_layer_nextn > 0 ? " (its MTP block belongs to the tail and is no layer of a range)" : ""));
    }
    if (range.first >= range.last) {
        refuse(wanted + " is empty; a range within [0, " + end + ") has first < last, and " + legal);
    }
}

ggml_type parse_cache_type(const std::string & name, const char * setting) {
    std::string legal;
    for (const ggml_type type : CACHE_TYPES) {
        if (name == ggml_type_name(type)) {
            return type;
        }
        legal += (legal.empty() ? "" : ", ") + std::string(ggml_type_name(type));
    }
    refuse(std::string(setting) + " '" + name + "' is no cache type of this worker; choose one of " + legal);
}

void check_quantised_cache(const CacheSettings & settings, uint32_t head_dim) {
    if (ggml_is_quantized(settings.type_v) && !settings.flash_attn) {
        refuse("a quantised V cache (" + std::string(ggml_type_name(settings.type_v)) +
               ") needs flash attention; turn it on or choose f16");
    }
    for (const ggml_type type : { settings.type_k, settings.type_v }) {
        if (head_dim % ggml_blck_size(type) != 0) {
            refuse(std::string("cache type ") + ggml_type_name(type) + " packs " +
                   std::to_string(ggml_blck_size(type)) + " values and does not divide the head size " +
                   std::to_string(head_dim) + "; choose f16");
        }
    }
}

void require(const GgufFile & file, bool rule, const std::string & otherwise) {
    if (!rule) {
        throw StartError(StartError::Kind::artifact, file.parts()[0] + ": " + otherwise);
    }
}

void check_experts(const GgufFile & file, const std::string & prefix) {
    const uint32_t n_expert = file.number(prefix + "expert_count", 0);
    const auto     used     = file.find_numbers(prefix + "expert_used_count").value_or(std::vector<uint32_t>{ 0 });
    const uint32_t most     = used.empty() ? 0 : *std::max_element(used.begin(), used.end());
    require(file, n_expert <= MAX_EXPERTS, std::to_string(n_expert) + " experts are too many");
    require(file, most <= n_expert && (n_expert == 0) == (most == 0),
            std::to_string(most) + " experts used of " + std::to_string(n_expert) + " makes no sense");
    require(file, file.number(prefix + "expert_group_count", 0) <= 1, "expert groups are not supported");
}

namespace {

constexpr std::array<const char *, 3> DENSE = { "llama", "qwen3", "gemma3" };

void check_vocabulary(const GgufFile & file, uint32_t n_vocab) {
    require(file, n_vocab > 0, "the vocabulary is empty");
    require(file, file.distinct_texts("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens are not all different texts");
}

}  // namespace

std::unique_ptr<Adapter> make_adapter(const GgufFile & file) {
    ModelFacts facts;
    facts.architecture = file.text("general.architecture");

    const std::string & arch = facts.architecture;
    if (arch != "deepseek4" && std::find(DENSE.begin(), DENSE.end(), arch) == DENSE.end()) {
        throw StartError(StartError::Kind::artifact, file.parts()[0] + ": architecture '" + arch +
                                                         "' has no adapter; workers run deepseek4, llama, "
                                                         "qwen3 and gemma3");
    }

    const uint32_t n_blocks = file.number(arch + ".block_count");
    facts.n_layer_nextn     = file.number(arch + ".nextn_predict_layers", 0);
    require(file, n_blocks <= MAX_BLOCKS, std::to_string(n_blocks) + " blocks are too many");
    require(file, facts.n_layer_nextn < n_blocks,
            "of " + std::to_string(n_blocks) + " blocks, " + std::to_string(facts.n_layer_nextn) +
                " are said to be MTP blocks; no main layer is left");
    facts.n_layer     = n_blocks - facts.n_layer_nextn;
    facts.n_embd      = file.number(arch + ".embedding_length");
    facts.n_ctx_train = file.number(arch + ".context_length");
    facts.n_vocab     = static_cast<uint32_t>(file.array_size("tokenizer.ggml.tokens"));
    require(file, facts.n_embd > 0, "embedding_length is 0");
    check_vocabulary(file, facts.n_vocab);

    return arch == "deepseek4" ? make_deepseek4_adapter(file, std::move(facts))
                               : make_dense_adapter(file, std::move(facts));
}

}  // namespace dgr

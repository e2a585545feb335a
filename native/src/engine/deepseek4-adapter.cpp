// DeepSeek V4: hc_mult residual streams between layers; each layer attends to a sliding window of raw entries
// and, by its compression ratio, to compressed ones: 4 (CSA, chosen by an indexer) or 128 (HCA).

#include "adapter.h"

#include <algorithm>

namespace dgr {

namespace {

constexpr uint32_t CSA_RATIO = 4;
constexpr uint32_t HCA_RATIO = 128;

// Upstream's draft head reads the residual behind the last three main layers.
constexpr uint32_t DRAFT_TAPS = 3;

class DeepSeek4Adapter final : public Adapter {
public:
    DeepSeek4Adapter(const GgufFile & file, ModelFacts facts) : Adapter(std::move(facts)) {
        const std::string prefix = model.architecture + ".";

        hc_mult     = file.number(prefix + "hyper_connection.count");
        head_dim    = file.number(prefix + "attention.key_length");
        indexer_dim = file.number(prefix + "attention.indexer.key_length");
        window      = file.number(prefix + "attention.sliding_window");
        ratios      = file.numbers(prefix + "attention.compress_ratios");

        const uint32_t n_block = model.n_layer + model.n_layer_nextn;
        const uint32_t n_group = file.number(prefix + "attention.output_group_count");
        const uint32_t n_head  = file.number(prefix + "attention.head_count");
        const uint32_t n_rot   = file.number(prefix + "rope.dimension_count");

        require(file, hc_mult > 0, "hyper_connection.count is 0");
        require(file, file.number(prefix + "hyper_connection.sinkhorn_iterations") > 0,
                "hyper_connection.sinkhorn_iterations is 0");
        require(file, ratios.size() >= n_block, "attention.compress_ratios has fewer entries than there are blocks");
        require(file, head_dim > 0 && head_dim == file.number(prefix + "attention.value_length"),
                "attention.key_length and attention.value_length differ");
        require(file, n_rot > 0 && n_rot <= head_dim && n_rot % 2 == 0,
                "rope.dimension_count is not an even number up to attention.key_length");
        require(file, file.number(prefix + "attention.head_count_kv") == 1, "attention.head_count_kv is not 1");
        require(file, n_group > 0 && n_head > 0 && n_head % n_group == 0,
                "attention.head_count is no multiple of attention.output_group_count");
        // the indexer's entries are rotated by a Hadamard matrix; with equal sizes the raw ones would be, too
        require(file, indexer_dim >= 64 && (indexer_dim & (indexer_dim - 1)) == 0 && indexer_dim != head_dim &&
                          indexer_dim >= n_rot,
                "attention.indexer.key_length is not a power of two from 64 on, other than attention.key_length");
        require(file, file.number(prefix + "attention.indexer.head_count") > 0 &&
                          file.number(prefix + "attention.indexer.top_k") > 0,
                "attention.indexer.head_count or top_k is 0");
        require(file, window > 0, "attention.sliding_window is 0");
        check_experts(file, prefix);
        for (uint32_t il = 0; il < model.n_layer; il++) {
            require(file, ratios[il] == 0 || ratios[il] == CSA_RATIO || ratios[il] == HCA_RATIO,
                    "layer " + std::to_string(il) + " has compression ratio " + std::to_string(ratios[il]) +
                        "; known are 0, 4 and 128");
        }
        // upstream would silently take the MTP block for a main layer
        const std::string probe = "blk." + std::to_string(model.n_layer) + ".nextn.eh_proj.weight";
        require(file, model.n_layer_nextn == 0 || file.has_tensor(probe),
                "nextn_predict_layers is " + std::to_string(model.n_layer_nextn) + " but " + probe +
                    " is missing; a slice without its MTP block must not name one");
    }

    const char * name() const override { return "deepseek4"; }
    uint32_t     version() const override { return 1; }
    uint32_t     state_schema_version() const override { return 1; }

    BoundarySchema boundary() const override { return { "mhc-residual", 1, hc_mult * model.n_embd }; }

    std::vector<LegalCut> legal_cuts() const override {
        std::vector<LegalCut> cuts;
        for (uint32_t layer = 1; layer < model.n_layer; layer++) {
            cuts.push_back({ layer, layer + DRAFT_TAPS <= model.n_layer });
        }
        return cuts;
    }

    void check_cache(const CacheSettings & settings) const override {
        if (settings.type_k != settings.type_v) {
            throw StartError(StartError::Kind::settings,
                             "deepseek4 keeps keys and values in one entry, so their cache types must be equal; got " +
                                 std::string(ggml_type_name(settings.type_k)) + " and " +
                                 ggml_type_name(settings.type_v));
        }
        check_quantised_cache(settings, head_dim);
        check_quantised_cache(settings, indexer_dim);
    }

    std::vector<StateLayout> state(const LayerRange & range, const CacheSettings & settings) const override {
        const uint64_t entry         = ggml_row_size(settings.type_k, head_dim);
        const uint64_t indexer_entry = ggml_row_size(settings.type_k, indexer_dim);
        const uint32_t window_cells  = window + settings.n_ubatch;

        std::vector<uint32_t> own;
        for (uint32_t il = range.first; il < range.last; il++) {
            own.push_back(il);
        }
        std::vector<uint32_t> mtp;
        for (uint32_t il = 0; range.last == model.n_layer && il < model.n_layer_nextn; il++) {
            mtp.push_back(model.n_layer + il);
        }
        const std::vector<uint32_t> csa = with_ratio(own, CSA_RATIO);
        const std::vector<uint32_t> hca = with_ratio(own, HCA_RATIO);

        std::vector<StateLayout> kinds = {
            { "kv-swa", own, 0, entry, 1, window_cells },
            { "csa", csa, 0, entry, CSA_RATIO, 0 },
            { "hca", hca, 0, entry, HCA_RATIO, 0 },
            { "indexer", csa, 0, indexer_entry, CSA_RATIO, 0 },
            { "csa-compressor", csa, compressor_bytes(2 * head_dim, 2 * CSA_RATIO), 0, 1, 0 },
            { "hca-compressor", hca, compressor_bytes(head_dim, HCA_RATIO), 0, 1, 0 },
            { "indexer-compressor", csa, compressor_bytes(2 * indexer_dim, 2 * CSA_RATIO), 0, 1, 0 },
            // reserved: upstream allots it beside the main layers
            { "mtp-kv-swa", mtp, 0, entry, 1, window_cells },
        };
        kinds.erase(std::remove_if(kinds.begin(), kinds.end(),
                                   [](const StateLayout & kind) { return kind.layers.empty(); }),
                    kinds.end());
        return kinds;
    }

private:
    std::vector<uint32_t> with_ratio(const std::vector<uint32_t> & layers, uint32_t ratio) const {
        std::vector<uint32_t> found;
        for (const uint32_t il : layers) {
            if (ratios[il] == ratio) {
                found.push_back(il);
            }
        }
        return found;
    }

    // running keys and scores, in f32 whatever the cache types
    static uint64_t compressor_bytes(uint64_t width, uint64_t rows) { return 2 * width * rows * sizeof(float); }

    uint32_t              hc_mult     = 0;
    uint32_t              head_dim    = 0;
    uint32_t              indexer_dim = 0;
    uint32_t              window      = 0;
    std::vector<uint32_t> ratios;
};

}  // namespace

std::unique_ptr<Adapter> make_deepseek4_adapter(const GgufFile & file, ModelFacts facts) {
    return std::make_unique<DeepSeek4Adapter>(file, std::move(facts));
}

}  // namespace dgr

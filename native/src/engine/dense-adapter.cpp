// Models with one residual stream and full attention in every layer.

#include "adapter.h"

#include <algorithm>

namespace dgr {

namespace {

class DenseAdapter final : public Adapter {
public:
    DenseAdapter(const GgufFile & file, ModelFacts facts) : Adapter(std::move(facts)) {
        const std::string prefix = model.architecture + ".attention.";

        const auto n_head    = a_layer(file, prefix + "head_count", file.numbers(prefix + "head_count"));
        const auto n_head_kv = file.find_numbers(prefix + "head_count_kv");
        heads_kv             = n_head_kv ? a_layer(file, prefix + "head_count_kv", *n_head_kv) : n_head;
        require(file, n_head[0] > 0, "attention.head_count is 0");
        check_experts(file, model.architecture + ".");
        head_k = file.number(prefix + "key_length", model.n_embd / n_head[0]);
        head_v = file.number(prefix + "value_length", model.n_embd / n_head[0]);
        // upstream keeps no cache for layers without heads; none of the supported models has such
        require(file, std::find(heads_kv.begin(), heads_kv.end(), 0U) == heads_kv.end(),
                "a layer without key-value heads; the dense adapter does not know such");
        for (uint32_t il = 0; il < model.n_layer; il++) {
            require(file, n_head[il] % heads_kv[il] == 0,
                    "attention.head_count is no multiple of attention.head_count_kv");
        }
    }

    const char * name() const override { return "dense"; }
    uint32_t     version() const override { return 1; }
    uint32_t     state_schema_version() const override { return 1; }

    BoundarySchema boundary() const override { return { "residual", 1, model.n_embd }; }

    std::vector<LegalCut> legal_cuts() const override {
        std::vector<LegalCut> cuts;
        for (uint32_t layer = 1; layer < model.n_layer; layer++) {
            cuts.push_back({ layer, true });
        }
        return cuts;
    }

    void check_cache(const CacheSettings & settings) const override {
        check_quantised_cache(settings, head_k);
        check_quantised_cache(settings, head_v);
    }

    std::vector<StateLayout> state(const LayerRange & range, const CacheSettings & settings) const override {
        // upstream pads transposed V rows to the widest layer
        const uint32_t widest = *std::max_element(heads_kv.begin(), heads_kv.end());

        std::vector<StateLayout> kinds;
        for (uint32_t il = range.first; il < range.last; il++) {
            const uint32_t v_heads = settings.flash_attn ? heads_kv[il] : widest;
            const uint64_t cell    = ggml_row_size(settings.type_k, static_cast<int64_t>(head_k) * heads_kv[il]) +
                                  ggml_row_size(settings.type_v, static_cast<int64_t>(head_v) * v_heads);
            const auto same = std::find_if(kinds.begin(), kinds.end(),
                                           [&](const StateLayout & kind) { return kind.cell_bytes == cell; });
            if (same != kinds.end()) {
                same->layers.push_back(il);
            } else {
                kinds.push_back({ "kv", { il }, 0, cell, 1, 0 });
            }
        }
        return kinds;
    }

private:
    // A scalar stands for every layer.
    std::vector<uint32_t> a_layer(const GgufFile & file, const std::string & key, std::vector<uint32_t> values) const {
        if (values.size() == 1) {
            values.assign(model.n_layer, values[0]);
        }
        require(file, values.size() >= model.n_layer, key + " has fewer entries than there are layers");
        return values;
    }

    uint32_t              head_k = 0;
    uint32_t              head_v = 0;
    std::vector<uint32_t> heads_kv;
};

}  // namespace

std::unique_ptr<Adapter> make_dense_adapter(const GgufFile & file, ModelFacts facts) {
    return std::make_unique<DenseAdapter>(file, std::move(facts));
}

}  // namespace dgr

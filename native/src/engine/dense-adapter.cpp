// Models with one residual stream; layers attend to everything, or to a sliding window of it.

#include "adapter.h"

#include <algorithm>

namespace dgr {

namespace {

constexpr uint32_t GEMMA3_PATTERN = 6;  // of which the last layer has no window, where a file states none

class DenseAdapter final : public Adapter {
public:
    DenseAdapter(const GgufFile & file, ModelFacts facts) : Adapter(std::move(facts)) {
        const std::string prefix = model.architecture + ".attention.";

        const auto n_head    = a_layer(file, prefix + "head_count", file.numbers(prefix + "head_count"));
        const auto n_head_kv = file.find_numbers(prefix + "head_count_kv");
        heads_kv             = n_head_kv ? a_layer(file, prefix + "head_count_kv", *n_head_kv) : n_head;
        require(file, n_head[0] > 0, "attention.head_count is 0");
        has_window.resize(model.n_layer);
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
        if (model.architecture != "llama") {
            check_heads(file, n_head);
        }
        if (model.architecture == "gemma3") {
            read_window(file);
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
            const uint32_t cells   = has_window[il] ? window + settings.n_ubatch : 0;
            const auto     same    = std::find_if(kinds.begin(), kinds.end(), [&](const StateLayout & kind) {
                return kind.cell_bytes == cell && kind.max_cells == cells;
            });
            if (same != kinds.end()) {
                same->layers.push_back(il);
            } else {
                kinds.push_back({ has_window[il] ? "kv-swa" : "kv", { il }, 0, cell, 1, cells });
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

    // What the graphs of qwen3 and gemma3 take for granted.
    void check_heads(const GgufFile & file, const std::vector<uint32_t> & n_head) const {
        require(file, head_k == head_v, "attention.key_length and attention.value_length differ");
        require(file, head_k % 2 == 0, "attention.key_length is odd");
        for (const char * key : { "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count",
                                  "rope.dimension_count_swa" }) {
            require(file, file.number(model.architecture + "." + key, head_k) == head_k,
                    std::string(key) + " and attention.key_length differ");
        }
        for (const auto & heads : { n_head, heads_kv }) {
            require(file, std::all_of(heads.begin(), heads.begin() + model.n_layer,
                                      [&](uint32_t count) { return count == heads[0]; }),
                    "not every layer has the same number of heads");
        }
    }

    void read_window(const GgufFile & file) {
        window = file.number("gemma3.attention.sliding_window", 0);
        if (window == 0) {
            return;
        }
        const std::string key     = "gemma3.attention.sliding_window_pattern";
        const auto        pattern = file.find_numbers(key).value_or(std::vector<uint32_t>{ GEMMA3_PATTERN });
        const bool        listed  = pattern.empty() || file.array_size(key) > 0;
        for (uint32_t il = 0; il < model.n_layer; il++) {
            has_window[il] = listed ? il < pattern.size() && pattern[il] != 0
                                    : pattern[0] == 0 || il % pattern[0] + 1 < pattern[0];
        }
        require(file, std::find(has_window.begin(), has_window.end(), true) != has_window.end(),
                "attention.sliding_window is stated, but no layer has one");
    }

    uint32_t              head_k = 0;
    uint32_t              head_v = 0;
    uint32_t              window = 0;
    std::vector<uint32_t> heads_kv;
    std::vector<bool>     has_window;  // by layer
};

}  // namespace

std::unique_ptr<Adapter> make_dense_adapter(const GgufFile & file, ModelFacts facts) {
    return std::make_unique<DenseAdapter>(file, std::move(facts));
}

}  // namespace dgr

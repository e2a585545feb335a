// What a model family is to a worker: where it may be cut, what crosses a cut, which state a range keeps, and
// which settings its cache accepts. Adapters describe and check; the graphs are upstream's.

#pragma once

#include "dgr/shard-engine.h"

#include "gguf-file.h"

#include "ggml.h"

#include <memory>
#include <string>
#include <vector>

namespace dgr {

struct ModelFacts {
    std::string architecture;
    uint32_t    n_layer       = 0;  // main layers
    uint32_t    n_layer_nextn = 0;
    uint32_t    n_embd        = 0;
    uint32_t    n_vocab       = 0;
    uint32_t    n_ctx_train   = 0;
};

struct CacheSettings {
    ggml_type type_k     = GGML_TYPE_F16;
    ggml_type type_v     = GGML_TYPE_F16;
    bool      flash_attn = false;
    uint32_t  n_ubatch   = 0;
};

// One kind of state. A slot has cells of `ratio` positions each in every layer, at most `max_cells` of them,
// and `layer_bytes` that do not depend on its length.
struct StateLayout {
    std::string           name;
    std::vector<uint32_t> layers;  // absolute indices
    uint64_t              layer_bytes = 0;
    uint64_t              cell_bytes  = 0;
    uint32_t              ratio       = 1;
    uint32_t              max_cells   = 0;  // 0: as many as the context needs

    // What a slot of n_ctx positions takes, upstream's padding included.
    uint64_t slot_bytes(uint32_t n_ctx) const;

    // The same as a line: fixed_bytes + bytes_per_token * n_ctx is exact at this n_ctx.
    StateKind describe(uint32_t n_ctx) const;
};

class Adapter {
public:
    virtual ~Adapter() = default;

    virtual const char *   name() const                 = 0;
    virtual uint32_t       version() const              = 0;
    virtual uint32_t       state_schema_version() const = 0;
    virtual BoundarySchema boundary() const             = 0;

    // A draft head reads the residual before some of the last layers; a cut behind these starves it.
    virtual std::vector<LegalCut> legal_cuts() const = 0;

    // Throws StartError (settings) with the legal choices.
    virtual void check_cache(const CacheSettings & settings) const = 0;

    // Kinds of which the range owns no layer are left out.
    virtual std::vector<StateLayout> state(const LayerRange & range, const CacheSettings & settings) const = 0;

    const ModelFacts & facts() const { return model; }

    // Throws StartError (settings) with the legal cuts.
    void check_range(const LayerRange & range) const;

protected:
    explicit Adapter(ModelFacts facts) : model(std::move(facts)) {}

    ModelFacts model;
};

// Throws StartError (artifact) for a family without an adapter, or one whose file contradicts itself.
std::unique_ptr<Adapter> make_adapter(const GgufFile & file);

std::unique_ptr<Adapter> make_deepseek4_adapter(const GgufFile & file, ModelFacts facts);
std::unique_ptr<Adapter> make_dense_adapter(const GgufFile & file, ModelFacts facts);

// The cache types that workers accept, by ggml's names. Throws StartError (settings).
ggml_type parse_cache_type(const std::string & name, const char * setting);

// Rules that hold for every family. Throws StartError (settings).
void check_quantised_cache(const CacheSettings & settings, uint32_t head_dim);

// Throws StartError (artifact) unless the rule holds. For what upstream takes for granted and asserts: such a file
// must be refused, not end the process.
void require(const GgufFile & file, bool rule, const std::string & otherwise);

// The rules about experts. Throws StartError (artifact).
void check_experts(const GgufFile & file, const std::string & prefix);

// Positions that upstream allots to a slot of n_ctx.
uint32_t padded_positions(uint32_t n_ctx);

}  // namespace dgr

// The boundary between the worker and whatever computes: one engine owns main layers [first, last) of one
// model and keeps the state of its slots. No llama, ggml or gRPC type appears here.
//
// Threads: describe() may be called from any thread; everything else from one thread, the engine thread.

#pragma once

#include "dgr/sampling.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dgr {

struct LayerRange {
    uint32_t first = 0;  // first own main layer
    uint32_t last  = 0;  // one past the last own main layer
};

// What crosses to the next stage for every token, in f32.
struct BoundarySchema {
    std::string name;         // "mhc-residual" or "residual"
    uint32_t    version = 1;
    uint32_t    width   = 0;  // values a token: n_embd, times hc_mult for mHC
};

// Everything that decides bits besides the weights and the code.
struct Numerics {
    std::string backend;
    std::string isa;
    uint32_t    n_ubatch        = 0;  // equals n_batch
    uint32_t    n_threads       = 0;
    uint32_t    n_threads_batch = 0;
    bool        flash_attn      = false;
    std::string type_k;
    std::string type_v;
    bool        extra_buffer_types = false;
};

// One kind of state that owned layers keep for each slot.
struct StateKind {
    std::string           name;
    std::vector<uint32_t> layers;               // absolute indices
    uint64_t              fixed_bytes     = 0;  // a slot
    uint64_t              bytes_per_token = 0;  // a slot and position
};

struct LegalCut {
    uint32_t layer              = 0;
    bool     carries_draft_head = true;
};

struct SlotClass {
    uint32_t slots = 0;
    uint32_t n_ctx = 0;  // positions a slot
};

struct EngineDescription {
    std::string architecture;
    std::string adapter;
    uint32_t    adapter_version      = 0;
    uint32_t    state_schema_version = 0;
    uint32_t    n_layer       = 0;  // main layers
    uint32_t    n_layer_nextn = 0;  // MTP blocks in the file
    uint32_t    n_embd        = 0;
    uint32_t    n_vocab       = 0;
    uint64_t    own_tensor_bytes = 0;
    LayerRange                range;
    BoundarySchema            boundary;
    Numerics                  numerics;
    std::vector<StateKind>    state;
    std::vector<LegalCut>     legal_cuts;
    std::vector<SlotClass>    slot_classes;
    std::vector<std::string>  devices;
    std::string               driver;

    bool is_head() const { return range.first == 0; }
    bool is_tail() const { return range.last == n_layer; }
};

enum class LogitsWanted { none, last, all };

// One ubatch of one slot.
struct EngineFrame {
    uint32_t        slot           = 0;
    uint32_t        first_position = 0;        // must be the slot's next position
    uint32_t        n_rows         = 0;
    const int32_t * token_ids      = nullptr;  // [n_rows], on every stage
    const float *   boundary       = nullptr;  // [n_rows, width] row after row; null on the head
    bool            want_token     = false;    // tail only
    LogitsWanted    want_logits    = LogitsWanted::none;  // tail only
};

// Valid until the next call into the engine.
struct EngineOutput {
    const float * boundary     = nullptr;  // [n_rows, width]; null on the tail
    uint32_t      boundary_rows = 0;
    int32_t       token        = -1;       // for the position after the last row; -1: not wanted
    std::vector<float> logits;             // [logits_rows, n_vocab]
    uint32_t      logits_rows  = 0;
};

// An engine cannot be made. what() says what, where, why and what would be legal.
struct StartError : std::runtime_error {
    enum class Kind {
        settings,  // range, slots, cache types: the caller asked for something else than can be had
        artifact,  // the model file: missing, broken, or of a family without an adapter
        memory,    // it does not fit
        failed,    // anything else
    };

    StartError(Kind error_kind, const std::string & reason) : std::runtime_error(reason), kind(error_kind) {}

    Kind kind;
};

// The caller's frame breaks a rule; nothing was touched. `field` names it.
struct InvalidFrame : std::runtime_error {
    InvalidFrame(std::string field_name, const std::string & reason)
        : std::runtime_error(reason), field(std::move(field_name)) {}

    std::string field;
};

// Computing failed; the state of every slot in the call is lost and has been cleared. They take no frame until closed.
struct EngineFailure : std::runtime_error {
    explicit EngineFailure(const std::string & reason, std::string values = "")
        : std::runtime_error(reason), not_finite(std::move(values)) {}

    std::string not_finite;  // where values that are not finite came out, what they are: "outgoing boundary"
};

class ShardEngine {
public:
    virtual ~ShardEngine() = default;

    virtual const EngineDescription & describe() const = 0;

    // Takes a free slot of the smallest class with at least n_ctx positions and clears it.
    // Returns -1 when none is free; largest_free() then says what would have fitted.
    virtual int32_t open(uint32_t n_ctx) = 0;

    // Positions of the largest free slot, 0 when there is none.
    virtual uint32_t largest_free() const = 0;

    // Positions that the slot can hold.
    virtual uint32_t slot_n_ctx(uint32_t slot) const = 0;

    // Next position of an open slot.
    virtual uint32_t position(uint32_t slot) const = 0;

    // How the tail chooses the tokens of an open slot that has run no frame; it chooses greedily until told.
    // Throws InvalidFrame naming the field.
    virtual void sample_with(uint32_t slot, const Sampling & sampling) = 0;

    // Throws what executing this frame alone would throw before anything is touched.
    virtual void check(const EngineFrame & frame) const = 0;

    // Computes n frames in one call of the library and fills `outputs` in their order. More than one frame: equal
    // rows, consecutive slots of one class in ascending order, together at most n_ubatch rows; bits then depend on
    // what is joined.
    // Throws InvalidFrame (nothing touched) or EngineFailure (every slot of the call cleared).
    virtual void execute_joined(const EngineFrame * frames, EngineOutput * outputs, size_t n) = 0;

    // Computes one frame.
    EngineOutput execute(const EngineFrame & frame) {
        EngineOutput output;
        execute_joined(&frame, &output, 1);
        return output;
    }

    // Clears the slot and gives it back; a free slot is left alone.
    virtual void close(uint32_t slot) = 0;

    virtual std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const = 0;
    virtual std::string          detokenize(const std::vector<int32_t> & ids, bool remove_special, bool unparse_special) const = 0;
};

}  // namespace dgr

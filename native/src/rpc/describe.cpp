#include "rpc/describe.h"

#include "session/prefix-hash.h"

#include <algorithm>

namespace dgr {

static constexpr uint64_t SLACK = 64 << 10;

uint64_t max_frame_bytes(const EngineDescription & engine) {
    const uint64_t rows = engine.numerics.n_ubatch;
    return rows * (engine.boundary.width * sizeof(float) + 5) + SLACK;
}

uint64_t max_message_bytes(const EngineDescription & engine) {
    const uint64_t rows = engine.numerics.n_ubatch;
    return std::max(max_frame_bytes(engine), rows * engine.n_vocab * sizeof(float) + SLACK);
}

static void fill_boundary(wire::BoundarySchema & out, const BoundarySchema & schema) {
    out.set_name(schema.name);
    out.set_version(schema.version);
    out.set_width(schema.width);
    out.set_dtype(wire::DTYPE_F32);
    const std::string text = schema.name + "|" + std::to_string(schema.version) + "|" + std::to_string(schema.width)
        + "|" + wire::DType_Name(wire::DTYPE_F32);
    out.set_digest(std::string(as_bytes(sha256(text))));
}

static void fill_numerics(wire::Numerics & out, const Numerics & numerics) {
    out.set_backend(numerics.backend);
    out.set_isa(numerics.isa);
    out.set_n_ubatch(numerics.n_ubatch);
    out.set_n_threads(numerics.n_threads);
    out.set_n_threads_batch(numerics.n_threads_batch);
    out.set_flash_attn(numerics.flash_attn);
    out.set_type_k(numerics.type_k);
    out.set_type_v(numerics.type_v);
    out.set_extra_buffer_types(numerics.extra_buffer_types);

    std::string text;
    auto line = [&text](const char * key, const std::string & value) { text += std::string(key) + "=" + value + "\n"; };
    line("backend", numerics.backend);
    line("isa", numerics.isa);
    line("n_ubatch", std::to_string(numerics.n_ubatch));
    line("n_threads", std::to_string(numerics.n_threads));
    line("n_threads_batch", std::to_string(numerics.n_threads_batch));
    line("flash_attn", numerics.flash_attn ? "true" : "false");
    line("type_k", numerics.type_k);
    line("type_v", numerics.type_v);
    line("extra_buffer_types", numerics.extra_buffer_types ? "true" : "false");
    out.set_digest(std::string(as_bytes(sha256(text))));
}

static void fill_build(wire::Build & out, const BuildInfo & build) {
    out.set_lane(build.lane);
    out.set_lane_digest(build.lane_digest);
    out.set_commit(build.commit);
    out.set_base_tree(build.base_tree);
    out.set_patched_tree(build.patched_tree);
    out.set_upstream_build(build.upstream_build);
    out.set_version(build.version);
}

static void fill_layout(wire::DescribeResponse & out, const EngineDescription & engine) {
    for (const StateKind & kind : engine.state) {
        wire::StateKind & state = *out.add_state();
        state.set_name(kind.name);
        state.mutable_layers()->Add(kind.layers.begin(), kind.layers.end());
        state.set_fixed_bytes(kind.fixed_bytes);
        state.set_bytes_per_token(kind.bytes_per_token);
    }
    for (const LegalCut & cut : engine.legal_cuts) {
        wire::LegalCut & legal = *out.add_legal_cuts();
        legal.set_layer(cut.layer);
        legal.set_carries_draft_head(cut.carries_draft_head);
    }
    for (const SlotClass & slots : engine.slot_classes) {
        wire::SlotClass & slot_class = *out.add_slot_classes();
        slot_class.set_slots(slots.slots);
        slot_class.set_n_ctx(slots.n_ctx);
    }
    out.mutable_mtp()->set_present(engine.n_layer_nextn > 0);
    out.mutable_mtp()->set_reserved(engine.n_layer_nextn > 0 && engine.is_tail());
    out.mutable_mtp()->set_executable(false);
}

wire::DescribeResponse describe(
    const EngineDescription & engine, const BuildInfo & build, const std::string & artifact_digest, const std::string & instance,
    Mode mode) {
    wire::DescribeResponse out;
    out.set_instance(instance);
    fill_build(*out.mutable_build(), build);
    wire::Artifact & artifact = *out.mutable_artifact();
    artifact.set_digest(artifact_digest);
    artifact.set_architecture(engine.architecture);
    artifact.set_n_layer(engine.n_layer);
    artifact.set_n_layer_nextn(engine.n_layer_nextn);
    artifact.set_n_embd(engine.n_embd);
    artifact.set_n_vocab(engine.n_vocab);
    out.mutable_range()->set_first(engine.range.first);
    out.mutable_range()->set_last(engine.range.last);
    fill_boundary(*out.mutable_boundary(), engine.boundary);
    fill_numerics(*out.mutable_numerics(), engine.numerics);
    out.set_mode(mode == Mode::exact ? "exact" : "throughput");
    out.set_adapter(engine.adapter);
    out.set_adapter_version(engine.adapter_version);
    out.set_state_schema_version(engine.state_schema_version);
    fill_layout(out, engine);
    wire::Limits & limits = *out.mutable_limits();
    limits.set_max_rows(engine.numerics.n_ubatch);
    limits.set_max_frame_bytes(max_frame_bytes(engine));
    limits.set_max_inflight_frames(MAX_INFLIGHT_FRAMES);
    limits.set_max_kept_result_bytes(MAX_KEPT_BYTES);
    out.mutable_devices()->Add(engine.devices.begin(), engine.devices.end());
    out.set_driver(engine.driver);
    out.set_own_tensor_bytes(engine.own_tensor_bytes);
    return out;
}

}  // namespace dgr

// What a worker says about itself, on the wire.

#pragma once

#include "dgr/shard-engine.h"
#include "dgr/shard/v1/shard.pb.h"

#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

struct BuildInfo {
    std::string lane;
    std::string lane_digest;
    std::string commit;
    std::string base_tree;
    std::string patched_tree;
    uint32_t    upstream_build = 0;
    std::string version;  // of the worker
};

enum class Mode {
    exact,       // a call of the engine computes one frame: the bits depend on nothing but the session
    throughput,  // a call joins frames of several sessions
};

// Frames sent and not yet answered, a session.
constexpr uint32_t MAX_INFLIGHT_FRAMES = 4;

// Answers kept for repeats, a session.
constexpr uint64_t MAX_KEPT_BYTES = 256ull << 20;

// The largest legal Execute message: a full boundary, ids and hashes, and what protobuf adds.
uint64_t max_frame_bytes(const EngineDescription & engine);

// The largest message that this worker sends: a full boundary, or logits of every row.
uint64_t max_message_bytes(const EngineDescription & engine);

wire::DescribeResponse describe(
    const EngineDescription & engine, const BuildInfo & build, const std::string & artifact_digest, const std::string & instance,
    Mode mode);

}  // namespace dgr

// What a worker lets its clients take. Stated in Describe; refused, with the limit's name, before it is taken.

#pragma once

#include "dgr/shard-engine.h"
#include "dgr/shard/v1/shard.pb.h"

#include <chrono>
#include <cstdint>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// A stream that is open proves that its client's process lives (gRPC's keepalive ends it within 15 seconds otherwise),
// but not that it will ever send: it holds a silent session for this many lease times.
constexpr int LEASES_WHILE_OPEN = 10;

struct StageLimits {
    std::chrono::milliseconds lease{60000};
};

// Says in Describe what they are.
void state_limits(wire::Limits & out, const StageLimits & limits, const EngineDescription & engine);

}  // namespace dgr

// A stage's numbers at one moment. Status and metrics are both made of it, so that they say the same.

#pragma once

#include "dgr/shard/v1/shard.pb.h"
#include "rpc/counters.h"

#include <array>
#include <cstdint>

namespace dgr {

namespace wire = ::dgr::shard::v1;

struct StageSnapshot {
    wire::StatusResponse status;
    std::array<uint64_t, REFUSAL_NAMES.size()>         refused{};  // by Refusal; their sum is status.rejected_frames
    std::array<Histogram::Reading, KIND_NAMES.size()>  compute;    // by Kind; their sum is status.busy_us
    std::array<Histogram::Reading, KIND_NAMES.size()>  wait;       // by Kind; their sum is status.waited_us
};

// Reads the counters once, and sets what of the status comes from them.
StageSnapshot read_counters(const StageCounters & counters);

}  // namespace dgr

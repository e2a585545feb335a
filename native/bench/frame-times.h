// What a frame costs beside its computation: sent to the tail alone, and answered.

#pragma once

#include "bench/bench-session.h"

#include <vector>

namespace dgr::bench {

struct FrameTime {
    uint64_t bytes      = 0;  // of the message
    double   us         = 0;  // from sending it to its result
    uint64_t compute_us = 0;  // of that, what the stage says it computed
};

// `count` frames of `rows` rows, one after the other; sessions are renewed when they are full.
std::vector<FrameTime> time_frames(const BenchStage & tail, uint32_t rows, uint32_t count);

}  // namespace dgr::bench

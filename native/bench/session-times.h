// How long sessions take that run beside each other: prompts first, then, all at once, one token after another.

#pragma once

#include "bench/bench-session.h"

#include <vector>

namespace dgr::bench {

struct Shape {
    uint32_t sessions      = 1;
    uint32_t prefill_rows  = 1;
    uint32_t frame_rows    = 0;  // of the prompt; 0: as many as the stages take
    uint32_t decode_tokens = 0;
};

struct SessionTimes {
    uint32_t frames     = 0;      // of the prompt
    double   prefill_us = 0;      // from the first frame sent to the last one's result
    std::vector<double>   token_us;  // from a frame sent to its result
    std::vector<uint64_t> tail_us;   // what the tail says it computed for it
};

struct RunTimes {
    std::vector<SessionTimes> sessions;
    double prefill_us = 0;  // of all, from the first start to the last end
    double decode_us  = 0;
};

RunTimes run_sessions(const BenchRoute & route, const Shape & shape);

}  // namespace dgr::bench

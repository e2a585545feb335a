// How long things took, and whether a frame's time has run out.

#pragma once

#include "dgr/shard/v1/shard.pb.h"

#include <chrono>
#include <cstdint>

namespace dgr {

using Instant = std::chrono::steady_clock::time_point;

inline uint64_t us_between(Instant from, Instant to) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(to - from).count());
}

inline bool is_late(const shard::v1::Frame & frame, Instant arrived) {
    const uint64_t limit_us = uint64_t{frame.remaining_ms()} * 1000;
    return limit_us != 0 && us_between(arrived, std::chrono::steady_clock::now()) >= limit_us;
}

}  // namespace dgr

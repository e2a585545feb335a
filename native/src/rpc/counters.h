// What a stage counts. The engine thread writes, anyone reads, and nobody waits for the other.

#pragma once

#include "rpc/histogram.h"
#include "rpc/refusal.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace dgr {

// Frames of one row go another way through the kernels than longer ones, and are timed apart.
enum class Kind { decode, prefill };
constexpr std::array<const char *, 2> KIND_NAMES = {"decode", "prefill"};

constexpr Kind kind_of(uint32_t rows) { return rows == 1 ? Kind::decode : Kind::prefill; }

struct StageCounters {
    std::atomic<uint64_t> bytes_in{0};   // messages with frames, as they came
    std::atomic<uint64_t> bytes_out{0};  // frames to the next stage, and results
    std::array<std::atomic<uint64_t>, REFUSAL_NAMES.size()> refused{};  // frames, by Refusal
    std::array<Histogram, KIND_NAMES.size()> compute;  // calls of the engine, by Kind
    std::array<Histogram, KIND_NAMES.size()> wait;     // frames, from arrival to the engine's call, by Kind

    void refuse(Refusal why) { ++refused[static_cast<size_t>(why)]; }
    Histogram & compute_of(Kind kind) { return compute[static_cast<size_t>(kind)]; }
    Histogram & wait_of(Kind kind) { return wait[static_cast<size_t>(kind)]; }
};

}  // namespace dgr

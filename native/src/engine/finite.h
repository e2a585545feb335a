// Whether numbers are finite and of a size to compute with, fast enough to ask at every boundary.

#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dgr {

// Far above any residual that a model computes, and far enough below the largest float for what a stage adds to it.
// Past it, sums inside a stage overflow and end as NaN. Upstream's kernels on accelerators choose experts by comparing
// (topk_moe): with NaN they choose ids that no expert has and read past the weights, which ends the process before
// anything can be checked. So it is a limit of what is let in and out.
constexpr float BOUNDARY_LIMIT = 0x1p100F;

// No value is NaN, infinite or of a magnitude above `limit` (finite, not negative).
// No branch in the loop, so that it vectorises; unaffected by fast-math flags.
inline bool all_within(const float * values, size_t n, float limit) {
    constexpr uint32_t MAGNITUDE = 0x7fffffffU;

    uint32_t most = 0;
    std::memcpy(&most, &limit, sizeof(most));
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        std::memcpy(&bits, values + i, sizeof(bits));
        found |= static_cast<uint32_t>((bits & MAGNITUDE) > most);
    }
    return found == 0;
}

// What came out is not finite, or beyond its limit; `values` names it.
struct NotFinite : std::runtime_error {
    NotFinite(const std::string & name, const std::string & reason) : std::runtime_error("the " + name + " " + reason), values(name) {}

    std::string values;
};

inline bool all_finite(const float * values, size_t n) {
    return all_within(values, n, FLT_MAX);
}

}  // namespace dgr

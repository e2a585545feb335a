// Whether numbers are finite, fast enough to ask at every boundary.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dgr {

// No branch in the loop, so that it vectorises; unaffected by fast-math flags.
inline bool all_finite(const float * values, size_t n) {
    constexpr uint32_t EXPONENT = 0x7f800000U;

    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        std::memcpy(&bits, values + i, sizeof(bits));
        found |= static_cast<uint32_t>((bits & EXPONENT) == EXPONENT);
    }
    return found == 0;
}

}  // namespace dgr

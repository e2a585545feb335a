// Why a frame was not run.

#pragma once

#include <array>
#include <cstddef>

namespace dgr {

enum class Refusal {
    order,       // not one hello and then frames
    epoch,       // not of the session and epoch that the stream is for
    field,       // a field breaks a rule
    not_finite,  // the boundary that came in holds values that are not finite, or too large
    cache_miss,  // the cache is not where the frame expects it
    released,    // executed before, and the answer is no longer kept
    conflict,    // executed before with other content
    draining,    // the worker is about to end
};

// In the order above; as logs and metrics say it.
constexpr std::array<const char *, 8> REFUSAL_NAMES = {
    "order", "epoch", "field", "not_finite", "cache_miss", "released", "conflict", "draining"};

constexpr const char * name_of(Refusal why) { return REFUSAL_NAMES[static_cast<size_t>(why)]; }

}  // namespace dgr

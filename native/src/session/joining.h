// Which waiting frames go into the next call of the engine.

#pragma once

#include "dgr/shard-engine.h"

#include <cstdint>
#include <vector>

namespace dgr {

struct WaitingFrame {
    uint32_t slot = 0;
    uint32_t rows = 0;
};

// Indices into `waiting`, in slot order: the frame that came first, and frames of equal rows in the slots next to its
// own without a gap, as far as the class and max_rows go, low slots first. Upstream's split joins only consecutive
// sequences and cuts them at the shortest: anything else would be computed one by one. Decode frames (one row) and
// prefill frames so never share a call.
// `waiting` is in order of arrival, not empty, with at most one frame a slot; max_rows is at least each frame's rows.
std::vector<size_t> choose_joined(
    const std::vector<WaitingFrame> & waiting, const std::vector<SlotClass> & classes, uint32_t max_rows);

}  // namespace dgr

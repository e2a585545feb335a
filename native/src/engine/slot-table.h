// Which slots there are, who is open, and where each stands. Knows nothing of what a slot's state is.

#pragma once

#include "dgr/shard-engine.h"

#include <vector>

namespace dgr {

// One fixed sequence of the context that serves its class.
struct Slot {
    uint32_t slot_class = 0;
    uint32_t sequence   = 0;  // within the class
    uint32_t n_ctx      = 0;
    uint32_t position   = 0;
    bool     open       = false;
    bool     failed     = false;  // takes no frame until closed
    bool     soiled     = false;  // its cells may hold NaN: not given out until wiped
};

class SlotTable {
public:
    explicit SlotTable(const std::vector<SlotClass> & classes);

    // A free slot of the smallest class with at least n_ctx positions, or -1.
    int32_t find_free(uint32_t n_ctx) const;

    // Positions of the largest free slot, 0 when there is none.
    uint32_t largest_free() const;

    // Throw InvalidFrame when there is no such slot, or it is not open.
    const Slot & known(uint32_t index) const;
    Slot &       known(uint32_t index);
    const Slot & opened(uint32_t index) const;
    Slot &       opened(uint32_t index);

    // No slot of the class is open and some are soiled: now they can be wiped.
    bool wants_wipe(uint32_t slot_class) const;
    void wiped(uint32_t slot_class);

private:
    std::vector<Slot> slots;
};

}  // namespace dgr

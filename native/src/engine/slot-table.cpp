#include "slot-table.h"

#include <algorithm>

namespace dgr {

namespace {

bool is_free(const Slot & slot) {
    return !slot.open && !slot.soiled;
}

}  // namespace

SlotTable::SlotTable(const std::vector<SlotClass> & classes) {
    for (uint32_t i = 0; i < classes.size(); i++) {
        for (uint32_t sequence = 0; sequence < classes[i].slots; sequence++) {
            Slot slot;
            slot.slot_class = i;
            slot.sequence   = sequence;
            slot.n_ctx      = classes[i].n_ctx;
            slots.push_back(slot);
        }
    }
}

int32_t SlotTable::find_free(uint32_t n_ctx) const {
    int32_t best = -1;
    for (size_t i = 0; i < slots.size(); i++) {
        const bool fits = is_free(slots[i]) && slots[i].n_ctx >= n_ctx;
        if (fits && (best < 0 || slots[i].n_ctx < slots[static_cast<size_t>(best)].n_ctx)) {
            best = static_cast<int32_t>(i);
        }
    }
    return best;
}

uint32_t SlotTable::largest_free() const {
    uint32_t largest = 0;
    for (const Slot & slot : slots) {
        if (is_free(slot)) {
            largest = std::max(largest, slot.n_ctx);
        }
    }
    return largest;
}

const Slot & SlotTable::known(uint32_t index) const {
    if (index >= slots.size()) {
        throw InvalidFrame("slot", "there is no slot " + std::to_string(index) + "; this engine has " +
                                       std::to_string(slots.size()));
    }
    return slots[index];
}

Slot & SlotTable::known(uint32_t index) {
    return const_cast<Slot &>(static_cast<const SlotTable *>(this)->known(index));
}

const Slot & SlotTable::opened(uint32_t index) const {
    const Slot & slot = known(index);
    if (!slot.open) {
        throw InvalidFrame("slot", "slot " + std::to_string(index) + " is not open");
    }
    return slot;
}

Slot & SlotTable::opened(uint32_t index) {
    return const_cast<Slot &>(static_cast<const SlotTable *>(this)->opened(index));
}

bool SlotTable::wants_wipe(uint32_t slot_class) const {
    bool soiled = false;
    for (const Slot & slot : slots) {
        if (slot.slot_class == slot_class) {
            if (slot.open) {
                return false;
            }
            soiled = soiled || slot.soiled;
        }
    }
    return soiled;
}

void SlotTable::wiped(uint32_t slot_class) {
    for (Slot & slot : slots) {
        if (slot.slot_class == slot_class) {
            slot.soiled = false;
        }
    }
}

}  // namespace dgr

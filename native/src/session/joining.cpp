#include "session/joining.h"

#include <map>

namespace dgr {

namespace {

// Slots are numbered through, class after class.
struct ClassBounds {
    uint32_t first = 0;
    uint32_t end   = 0;
};

ClassBounds class_of(uint32_t slot, const std::vector<SlotClass> & classes) {
    ClassBounds bounds;
    for (const SlotClass & sizes : classes) {
        bounds = { bounds.end, bounds.end + sizes.slots };
        if (slot < bounds.end) {
            break;
        }
    }
    return bounds;
}

}  // namespace

std::vector<size_t> choose_joined(
    const std::vector<WaitingFrame> & waiting, const std::vector<SlotClass> & classes, uint32_t max_rows) {
    const WaitingFrame & oldest = waiting.front();
    const ClassBounds    bounds = class_of(oldest.slot, classes);
    const uint32_t       most   = max_rows / oldest.rows;

    std::map<uint32_t, size_t> alike;  // by slot
    for (size_t i = 0; i < waiting.size(); ++i) {
        const bool of_class = waiting[i].slot >= bounds.first && waiting[i].slot < bounds.end;
        if (of_class && waiting[i].rows == oldest.rows) {
            alike[waiting[i].slot] = i;
        }
    }

    uint32_t first = oldest.slot;
    uint32_t end   = oldest.slot + 1;
    while (end - first < most && first > 0 && alike.count(first - 1) != 0) {
        --first;
    }
    while (end - first < most && alike.count(end) != 0) {
        ++end;
    }

    std::vector<size_t> chosen;
    for (uint32_t slot = first; slot < end; ++slot) {
        chosen.push_back(alike.at(slot));
    }
    return chosen;
}

}  // namespace dgr

#include "rpc/limits.h"

#include "rpc/describe.h"

#include <algorithm>

namespace dgr {

static uint32_t slots_of(const EngineDescription & engine) {
    uint32_t slots = 0;
    for (const SlotClass & one : engine.slot_classes) {
        slots += one.slots;
    }
    return slots;
}

void state_limits(wire::Limits & out, const StageLimits & limits, const EngineDescription & engine) {
    uint32_t longest = 0;
    for (const SlotClass & one : engine.slot_classes) {
        longest = std::max(longest, one.n_ctx);
    }
    out.set_lease_ms(static_cast<uint64_t>(limits.lease.count()));
    out.set_max_sessions(slots_of(engine));
    out.set_max_context(longest);
}

}  // namespace dgr

#include "rpc/snapshot.h"

#include "rpc/resident-memory.h"

namespace dgr {

StageSnapshot read_counters(const StageCounters & counters) {
    StageSnapshot out;
    uint64_t rejected = 0, busy_us = 0, waited_us = 0;
    for (size_t i = 0; i < out.refused.size(); ++i) {
        rejected += out.refused[i] = counters.refused[i];
    }
    for (size_t i = 0; i < KIND_NAMES.size(); ++i) {
        out.compute[i] = counters.compute[i].read();
        out.wait[i]    = counters.wait[i].read();
        busy_us   += out.compute[i].sum_us;
        waited_us += out.wait[i].sum_us;
    }
    out.status.set_rejected_frames(rejected);
    out.status.set_busy_us(busy_us);
    out.status.set_waited_us(waited_us);
    out.status.set_bytes_in(counters.bytes_in);
    out.status.set_bytes_out(counters.bytes_out);
    out.status.set_resident_bytes(resident_bytes());
    return out;
}

}  // namespace dgr

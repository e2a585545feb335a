#include "rpc/metrics.h"

#include "rpc/exposition.h"

namespace dgr {

static void tell_identity(Exposition & out, const wire::DescribeResponse & about) {
    out.family("dgr_worker_info", "gauge", "What this worker is; the value is always 1.");
    out.sample({{"version", about.build().version()}, {"lane", about.build().lane()}, {"lane_digest", about.build().lane_digest()},
        {"commit", about.build().commit()}, {"backend", about.numerics().backend()}, {"artifact", about.artifact().digest()},
        {"architecture", about.artifact().architecture()}, {"mode", about.mode()}, {"first", std::to_string(about.range().first())},
        {"last", std::to_string(about.range().last())}, {"worker", about.instance()}}, 1);
    out.single("dgr_worker_weights_bytes", "gauge", "Weights of the own layers.", about.own_tensor_bytes());
}

static void tell_histogram(Exposition & out, const std::string & name, const std::string & help,
                           const std::array<Histogram::Reading, KIND_NAMES.size()> & kinds) {
    out.family(name, "histogram", help);
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
        const Histogram::Reading & times = kinds[kind];
        for (size_t i = 0; i < times.up_to.size(); ++i) {
            const std::string end = i < Histogram::ENDS.size() ? as_seconds(Histogram::ENDS[i]) : "+Inf";
            out.sample({{"kind", KIND_NAMES[kind]}, {"le", end}}, times.up_to[i], "_bucket");
        }
        out.sample({{"kind", KIND_NAMES[kind]}}, as_seconds(times.sum_us), "_sum");
        out.sample({{"kind", KIND_NAMES[kind]}}, times.count(), "_count");
    }
}

std::string metrics_text(const wire::DescribeResponse & about, const StageSnapshot & now) {
    const wire::StatusResponse & status = now.status;
    Exposition out;
    tell_identity(out, about);
    out.single("dgr_worker_uptime_seconds", "gauge", "Time since the start.", as_seconds(status.uptime_us()));
    out.single("dgr_worker_draining", "gauge", "1 when no new work is taken.", status.draining() ? 1 : 0);
    out.single("dgr_worker_resident_bytes", "gauge", "Memory in RAM, mapped weights that were touched included.", status.resident_bytes());
    out.single("dgr_worker_slots", "gauge", "Sessions that can be held at once.", status.slots_total());
    out.single("dgr_worker_slots_free", "gauge", "Slots that no session holds.", status.slots_free());
    out.single("dgr_worker_sessions", "gauge", "Sessions held.", status.slots_total() - status.slots_free());
    out.single("dgr_worker_newest_epoch", "gauge", "The highest epoch of the sessions held; 0 without any.", status.newest_epoch());
    out.single("dgr_worker_queued_frames", "gauge", "Frames and calls that wait for the engine's thread.", status.queued_frames());
    out.single("dgr_worker_frames_total", "counter", "Frames executed.", status.executed_frames());
    out.single("dgr_worker_rows_total", "counter", "Rows executed, one a token.", status.executed_rows());
    out.single("dgr_worker_failed_frames_total", "counter", "Frames that failed here or at the next stage.", status.failed_frames());
    out.family("dgr_worker_refused_frames_total", "counter", "Frames that were not run, by reason.");
    for (size_t i = 0; i < now.refused.size(); ++i) {
        out.sample({{"reason", REFUSAL_NAMES[i]}}, now.refused[i]);
    }
    out.single("dgr_worker_received_bytes_total", "counter", "Messages with frames that came.", status.bytes_in());
    out.single("dgr_worker_sent_bytes_total", "counter", "Frames sent to the next stage, and results.", status.bytes_out());
    tell_histogram(out, "dgr_worker_compute_seconds", "Calls of the engine; decode: of frames with one row.", now.compute);
    tell_histogram(out, "dgr_worker_wait_seconds", "From a frame's arrival to the engine's call.", now.wait);
    return out.text();
}

}  // namespace dgr

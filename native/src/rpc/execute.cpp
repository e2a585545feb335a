#include "rpc/execute.h"

#include "rpc/describe.h"
#include "rpc/stage.h"

#include <chrono>

namespace dgr {

// A cancelled stream looks like a half-closed one until OnCancel comes a moment later. Taken for half-closed, its
// end would reach the tail as an orderly one.
static constexpr auto CANCEL_PATIENCE = std::chrono::milliseconds(50);

void ExecuteStream::dealt_with() {
    if (in_flight.fetch_sub(1) == MAX_INFLIGHT_FRAMES) {
        gate.read();
    }
}

ExecuteReactor::ExecuteReactor(std::shared_ptr<Stage> stage, const std::string & peer)
    : stage_(std::move(stage)), stream_(std::make_shared<ExecuteStream>(this, peer)) {
    stream_->gate.read();
}

void ExecuteReactor::gate_read() {
    request_ = std::make_shared<wire::ExecuteRequest>();
    StartRead(request_.get());
}

void ExecuteReactor::OnReadDone(bool ok) {
    if (!ok) {
        half_close_.Set(std::chrono::system_clock::now() + CANCEL_PATIENCE,
            [weak = std::weak_ptr<Stage>(stage_), stream = stream_](bool elapsed) {
                const auto stage = elapsed ? weak.lock() : nullptr;
                if (stage) {
                    stage->post([raw = stage.get(), stream] { raw->reads_done(stream); });
                }
            });
        return;
    }
    const auto arrived = std::chrono::steady_clock::now();
    stage_->post([stage = stage_.get(), stream = stream_, request = std::move(request_), arrived] {
        stage->take(stream, {request, arrived});
    });
    // The last message that fits is read; the next only when one was dealt with.
    if (stream_->in_flight.fetch_add(1) + 1 < MAX_INFLIGHT_FRAMES) {
        stream_->gate.read();
    }
}

void ExecuteReactor::OnCancel() {
    stream_->cancelled = true;
    stream_->gate.end(grpc::Status::CANCELLED);
    stage_->post([stage = stage_.get(), stream = stream_] { stage->stream_gone(stream); });
}

}  // namespace dgr

// An Execute stream as the stage sees it: where frames come from and where Executed and chained results go.

#pragma once

#include "dgr/shard/v1/shard.grpc.pb.h"
#include "rpc/stream-gate.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

class Stage;
class ExecuteReactor;

// A message with the moment it came in.
struct Arrival {
    std::shared_ptr<const wire::ExecuteRequest> request;
    std::chrono::steady_clock::time_point       at;
};

struct ExecuteStream {
    ExecuteStream(ExecuteReactor * reactor, std::string sender) : gate(reactor), peer(std::move(sender)) {}

    StreamGate<ExecuteReactor, wire::ExecuteResponse> gate;
    const std::string     peer;  // as gRPC writes it
    std::atomic<bool>     cancelled{false};
    std::atomic<uint32_t> in_flight{0};  // messages read and not yet dealt with

    // The engine thread's own.
    std::string session;  // empty until a hello was accepted
    uint64_t    epoch       = 0;
    bool        half_closed = false;
    bool        queued      = false;  // a frame of it waits for its turn in the engine (throughput mode)
    std::chrono::steady_clock::time_point last_told = std::chrono::steady_clock::now();  // or since when it is there
    std::deque<Arrival> waiting;  // until its turn is over and the next stage gives credit

    // Frames that came over it are still to be computed.
    bool has_more() const { return queued || !waiting.empty(); }

    // One message was dealt with; reads on where reading had stopped for it.
    void dealt_with();
};

class ExecuteReactor final : public grpc::ServerBidiReactor<wire::ExecuteRequest, wire::ExecuteResponse> {
public:
    explicit ExecuteReactor(std::shared_ptr<Stage> stage, const std::string & peer = "");

    const std::shared_ptr<ExecuteStream> & stream() const { return stream_; }

    void gate_write(const wire::ExecuteResponse * response) { StartWrite(response); }
    void gate_read();
    void gate_end(const grpc::Status & status) { Finish(status); }

    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override { stream_->gate.written(ok); }
    void OnCancel() override;
    void OnDone() override { delete this; }

private:
    std::shared_ptr<Stage>         stage_;
    std::shared_ptr<ExecuteStream> stream_;
    std::shared_ptr<wire::ExecuteRequest> request_;
    grpc::Alarm                    half_close_;
};

}  // namespace dgr

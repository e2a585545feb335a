// The stream of one session to the next stage. Every session has a connection of its own, so that a small decode
// frame never waits behind another session's prefill.

#pragma once

#include "dgr/shard/v1/shard.grpc.pb.h"
#include "rpc/address.h"
#include "rpc/certificates.h"
#include "rpc/stream-gate.h"

#include <functional>
#include <memory>
#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// Where a stage may connect to for its clients, and what it shows there.
struct NextStages {
    AllowList                           allowed;
    std::shared_ptr<const Certificates> certificates;  // none: plaintext
};

std::shared_ptr<grpc::Channel> connect(const std::string & address, const NextStages & rules, uint64_t max_message_bytes);

class NextStage final : public grpc::ClientBidiReactor<wire::ExecuteRequest, wire::ExecuteResponse> {
public:
    struct Events {
        std::function<void(wire::ExecuteResponse)> response;
        std::function<void(grpc::Status)>          closed;  // the last event
    };

    // Connects and says hello. Events come from gRPC's threads and must not block.
    static std::shared_ptr<NextStage> start(const std::shared_ptr<grpc::Channel> & channel, wire::ExecuteRequest hello, Events events);

    void send(wire::ExecuteRequest request) { gate_.send(std::move(request)); }

    // No more frames will come; the other side ends when it has answered them all.
    void finish_writes() { gate_.end(grpc::Status::OK); }

    void cancel();

    void gate_write(const wire::ExecuteRequest * request) { StartWrite(request); }
    void gate_read() {}  // reads follow each other in OnReadDone
    void gate_end(const grpc::Status & status);

    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override { gate_.written(ok); }
    void OnDone(const grpc::Status & status) override;

private:
    NextStage(const std::shared_ptr<grpc::Channel> & channel, Events events);

    std::unique_ptr<wire::Shard::Stub> stub_;
    Events                             events_;
    grpc::ClientContext                context_;
    wire::ExecuteResponse              response_;
    StreamGate<NextStage, wire::ExecuteRequest> gate_;
    std::shared_ptr<NextStage>         self_;  // until OnDone
};

}  // namespace dgr

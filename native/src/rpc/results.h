// A Results stream as the stage sees it: where the tail's results go.

#pragma once

#include "dgr/shard/v1/shard.grpc.pb.h"
#include "rpc/stream-gate.h"

#include <memory>
#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

class Stage;
class ResultsReactor;

struct ResultsStream {
    ResultsStream(ResultsReactor * reactor, std::string receiver) : gate(reactor), peer(std::move(receiver)) {}

    StreamGate<ResultsReactor, wire::ResultsResponse> gate;
    const std::string peer;  // as gRPC writes it
    uint64_t from_sequence = 0;  // results before it are not wanted
};

class ResultsReactor final : public grpc::ServerWriteReactor<wire::ResultsResponse> {
public:
    ResultsReactor(std::shared_ptr<Stage> stage, const wire::ResultsRequest & request, const std::string & peer = "");

    void gate_write(const wire::ResultsResponse * response) { StartWrite(response); }
    void gate_read() {}
    void gate_end(const grpc::Status & status) { Finish(status); }

    void OnWriteDone(bool ok) override { stream_->gate.written(ok); }
    void OnCancel() override;
    void OnDone() override { delete this; }

private:
    std::shared_ptr<Stage>         stage_;
    std::shared_ptr<ResultsStream> stream_;
};

}  // namespace dgr

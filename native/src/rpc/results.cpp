#include "rpc/results.h"

#include "rpc/stage.h"

namespace dgr {

ResultsReactor::ResultsReactor(std::shared_ptr<Stage> stage, const wire::ResultsRequest & request, const std::string & peer)
    : stage_(std::move(stage)), stream_(std::make_shared<ResultsStream>(this, peer)) {
    stage_->post([stage = stage_.get(), stream = stream_, request] { stage->attach_results(stream, request); });
}

void ResultsReactor::OnCancel() {
    stream_->gate.end(grpc::Status::CANCELLED);
    stage_->post([stage = stage_.get(), stream = stream_] { stage->results_gone(stream); });
}

}  // namespace dgr

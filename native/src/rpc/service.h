// The gRPC service: hands each call to the stage and never blocks.

#pragma once

#include "dgr/shard/v1/shard.grpc.pb.h"
#include "rpc/stage.h"

#include <memory>

namespace dgr {

class ShardService final : public wire::Shard::CallbackService {
public:
    explicit ShardService(std::shared_ptr<Stage> stage) : stage_(std::move(stage)) {}

    using Context = grpc::CallbackServerContext;

    grpc::ServerUnaryReactor * Describe(Context * context, const wire::DescribeRequest *, wire::DescribeResponse * response) override;
    grpc::ServerUnaryReactor * Status(Context * context, const wire::StatusRequest *, wire::StatusResponse * response) override;
    grpc::ServerUnaryReactor * OpenSession(Context * context, const wire::OpenSessionRequest * request, wire::OpenSessionResponse * response) override;
    grpc::ServerUnaryReactor * CloseSession(Context * context, const wire::CloseSessionRequest * request, wire::CloseSessionResponse * response) override;
    grpc::ServerUnaryReactor * Tokenize(Context * context, const wire::TokenizeRequest * request, wire::TokenizeResponse * response) override;
    grpc::ServerUnaryReactor * Detokenize(Context * context, const wire::DetokenizeRequest * request, wire::DetokenizeResponse * response) override;
    grpc::ServerWriteReactor<wire::ResultsResponse> * Results(Context * context, const wire::ResultsRequest * request) override;
    grpc::ServerBidiReactor<wire::ExecuteRequest, wire::ExecuteResponse> * Execute(Context * context) override;

private:
    std::shared_ptr<Stage> stage_;
};

}  // namespace dgr

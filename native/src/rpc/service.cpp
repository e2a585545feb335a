#include "rpc/service.h"

#include "rpc/compatibility.h"
#include "rpc/status.h"

#include <chrono>

namespace dgr {

using grpc::StatusCode;

static constexpr auto   SUCCESSOR_DEADLINE = std::chrono::seconds(5);
static constexpr size_t MAX_TEXT_BYTES     = 1 << 20;

static grpc::ServerUnaryReactor * finished(grpc::CallbackServerContext * context, const grpc::Status & status) {
    grpc::ServerUnaryReactor * reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
}

// Runs `work` on the engine thread and ends the call with its status; what it throws ends only this call.
template <class Work>
static void finish_on_engine_thread(const std::shared_ptr<Stage> & stage, grpc::ServerUnaryReactor * reactor, Work work) {
    stage->post([reactor, work] {
        grpc::Status status;
        try {
            status = work();
        } catch (const std::exception & error) {
            status = {StatusCode::INTERNAL, error.what()};
        }
        reactor->Finish(status);
    });
}

grpc::ServerUnaryReactor * ShardService::Describe(Context * context, const wire::DescribeRequest *, wire::DescribeResponse * response) {
    *response = stage_->identity();
    return finished(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor * ShardService::Status(Context * context, const wire::StatusRequest *, wire::StatusResponse * response) {
    *response = stage_->status();
    return finished(context, grpc::Status::OK);
}

// A look at the successor before the slot is taken: it must be who the client says, and fit.
struct SuccessorLook {
    grpc::ClientContext              context;
    std::unique_ptr<wire::Shard::Stub> stub;
    wire::DescribeRequest            request;
    wire::DescribeResponse           response;
};

static void open_on_stage(const std::shared_ptr<Stage> & stage, const wire::OpenSessionRequest * request,
                          wire::OpenSessionResponse * response, grpc::ServerUnaryReactor * reactor, const std::string & peer) {
    finish_on_engine_thread(stage, reactor, [raw = stage.get(), request, response, peer] {
        const grpc::Status status = raw->open(*request, *response);
        raw->events().open_answered(*request, status, peer);
        return status;
    });
}

grpc::ServerUnaryReactor * ShardService::OpenSession(
    Context * context, const wire::OpenSessionRequest * request, wire::OpenSessionResponse * response) {
    const grpc::Status fits = check_open(*request, stage_->identity(), stage_->next_stages().allowed);
    const std::string peer = context->peer();
    if (!fits.ok()) {
        stage_->events().open_answered(*request, fits, peer);
        return finished(context, fits);
    }
    grpc::ServerUnaryReactor * reactor = context->DefaultReactor();
    if (!request->has_successor()) {
        open_on_stage(stage_, request, response, reactor, peer);
        return reactor;
    }
    auto look = std::make_shared<SuccessorLook>();
    look->stub = wire::Shard::NewStub(stage_->connect_next(request->successor_address()));
    look->context.set_deadline(std::chrono::system_clock::now() + SUCCESSOR_DEADLINE);
    look->stub->async()->Describe(&look->context, &look->request, &look->response,
        [stage = stage_, look, request, response, reactor, peer](const grpc::Status & status) {
            const grpc::Status fits = status.ok() ? check_successor(*request, stage->identity(), look->response)
                : rejected(StatusCode::FAILED_PRECONDITION, "successor_address",
                    request->successor_address() + " does not answer: " + status.error_message());
            if (!fits.ok()) {
                stage->events().open_answered(*request, fits, peer);
                reactor->Finish(fits);
                return;
            }
            open_on_stage(stage, request, response, reactor, peer);
        });
    return reactor;
}

grpc::ServerUnaryReactor * ShardService::CloseSession(
    Context * context, const wire::CloseSessionRequest * request, wire::CloseSessionResponse * response) {
    grpc::ServerUnaryReactor * reactor = context->DefaultReactor();
    finish_on_engine_thread(stage_, reactor, [stage = stage_.get(), request, response] { return stage->close(*request, *response); });
    return reactor;
}

grpc::ServerUnaryReactor * ShardService::Tokenize(
    Context * context, const wire::TokenizeRequest * request, wire::TokenizeResponse * response) {
    if (request->text().size() > MAX_TEXT_BYTES) {
        return finished(context, rejected(StatusCode::INVALID_ARGUMENT, "text",
            "has " + std::to_string(request->text().size()) + " bytes", "at most " + std::to_string(MAX_TEXT_BYTES)));
    }
    grpc::ServerUnaryReactor * reactor = context->DefaultReactor();
    finish_on_engine_thread(stage_, reactor, [stage = stage_.get(), request, response] {
        const std::vector<int32_t> ids = stage->engine().tokenize(request->text(), request->add_special(), request->parse_special());
        response->mutable_token_ids()->Add(ids.begin(), ids.end());
        return grpc::Status::OK;
    });
    return reactor;
}

grpc::ServerUnaryReactor * ShardService::Detokenize(
    Context * context, const wire::DetokenizeRequest * request, wire::DetokenizeResponse * response) {
    const auto n_vocab = static_cast<int64_t>(stage_->identity().artifact().n_vocab());
    for (int i = 0; i < request->token_ids_size(); ++i) {
        if (request->token_ids(i) < 0 || request->token_ids(i) >= n_vocab) {
            return finished(context, rejected(StatusCode::INVALID_ARGUMENT, "token_ids",
                "number " + std::to_string(i) + " is " + std::to_string(request->token_ids(i)), "0 to " + std::to_string(n_vocab - 1)));
        }
    }
    grpc::ServerUnaryReactor * reactor = context->DefaultReactor();
    finish_on_engine_thread(stage_, reactor, [stage = stage_.get(), request, response] {
        const std::vector<int32_t> ids(request->token_ids().begin(), request->token_ids().end());
        response->set_text(stage->engine().detokenize(ids, request->remove_special(), request->unparse_special()));
        return grpc::Status::OK;
    });
    return reactor;
}

grpc::ServerWriteReactor<wire::ResultsResponse> * ShardService::Results(Context * context, const wire::ResultsRequest * request) {
    return new ResultsReactor(stage_, *request, context->peer());  // deletes itself when done
}

grpc::ServerBidiReactor<wire::ExecuteRequest, wire::ExecuteResponse> * ShardService::Execute(Context * context) {
    return new ExecuteReactor(stage_, context->peer());  // deletes itself when done
}

}  // namespace dgr

#include "rpc/next-stage.h"

namespace dgr {

// gRPC takes what stands before the first colon for a scheme where it knows one, as in "unix:1".
static std::string target(const std::string & address) {
    const auto parsed = Address::parse(address);
    return parsed && parsed->is_name() ? "dns:///" + address : address;
}

std::shared_ptr<grpc::Channel> connect(const std::string & address, const NextStages & rules, uint64_t max_message_bytes) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(max_message_bytes));
    arguments.SetMaxSendMessageSize(static_cast<int>(max_message_bytes));
    const auto credentials = rules.certificates ? rules.certificates->for_next_stage() : grpc::InsecureChannelCredentials();
    return grpc::CreateCustomChannel(target(address), credentials, arguments);
}

NextStage::NextStage(const std::shared_ptr<grpc::Channel> & channel, Events events)
    : stub_(wire::Shard::NewStub(channel)), events_(std::move(events)), gate_(this) {}

std::shared_ptr<NextStage> NextStage::start(const std::shared_ptr<grpc::Channel> & channel, wire::ExecuteRequest hello, Events events) {
    std::shared_ptr<NextStage> stage(new NextStage(channel, std::move(events)));
    stage->self_ = stage;
    stage->stub_->async()->Execute(&stage->context_, stage.get());
    stage->AddHold();  // writes come from outside of reactions
    stage->StartRead(&stage->response_);
    stage->StartCall();
    stage->send(std::move(hello));
    return stage;
}

void NextStage::cancel() {
    context_.TryCancel();
    gate_.end(grpc::Status::CANCELLED);
}

void NextStage::gate_end(const grpc::Status & status) {
    if (status.ok()) {
        StartWritesDone();
    }
    RemoveHold();
}

void NextStage::OnReadDone(bool ok) {
    if (!ok) {
        gate_.end(grpc::Status::CANCELLED);  // the other side has ended; nothing more can be sent
        return;
    }
    events_.response(std::move(response_));
    response_.Clear();
    StartRead(&response_);
}

void NextStage::OnDone(const grpc::Status & status) {
    events_.closed(status);
    const std::shared_ptr<NextStage> last = std::move(self_);
}

}  // namespace dgr

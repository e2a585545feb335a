#include "rpc/server.h"

#include "rpc/loopback.h"
#include "rpc/service.h"
#include "rpc/stage.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <future>
#include <mutex>
#include <stdexcept>

namespace dgr {

static void enable_plugins() {
    static std::once_flag once;
    std::call_once(once, [] {
        grpc::EnableDefaultHealthCheckService(true);
        grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    });
}

ShardServer::ShardServer(std::unique_ptr<ShardEngine> engine, ServerOptions options)
    : options_(std::move(options)),
      stage_(std::make_shared<Stage>(std::move(engine), options_.build, options_.artifact_digest, options_.mode)),
      service_(std::make_unique<ShardService>(stage_)) {}

ShardServer::~ShardServer() {
    drain(std::chrono::seconds(1));
}

void ShardServer::start() {
    if (!is_loopback(options_.listen)) {
        throw std::invalid_argument("'" + options_.listen + "' is not a loopback address with a port; "
            "this version has no TLS, so it listens on loopback only");
    }
    enable_plugins();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(stage_->identity().limits().max_frame_bytes()));
    builder.SetMaxSendMessageSize(static_cast<int>(stage_->message_limit()));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second worker on this port must fail
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) {
        throw std::runtime_error("cannot listen on " + options_.listen + "; is the port taken?");
    }
    server_->GetHealthCheckService()->SetServingStatus(true);
}

void ShardServer::drain(std::chrono::milliseconds bound) {
    if (!server_) {
        stage_->stop();
        return;
    }
    const auto deadline = std::chrono::system_clock::now() + bound;
    server_->GetHealthCheckService()->SetServingStatus(false);
    stage_->refuse_new_work();
    auto idle = std::make_shared<std::promise<void>>();
    std::future<void> reached = idle->get_future();
    stage_->post([stage = stage_.get(), idle] {  // after what runs and what is queued
        stage->end_all();
        idle->set_value();
    });
    reached.wait_until(deadline);
    server_->Shutdown(deadline);
    server_->Wait();
    stage_->stop();
    server_.reset();
}

}  // namespace dgr

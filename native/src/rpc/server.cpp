#include "rpc/server.h"

#include "rpc/service.h"
#include "rpc/stage.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace dgr {

static constexpr auto POLL        = std::chrono::milliseconds(20);
static constexpr auto STREAMS_END = std::chrono::seconds(1);  // for answers on their way to readers

static void enable_plugins() {
    static std::once_flag once;
    std::call_once(once, [] {
        grpc::EnableDefaultHealthCheckService(true);
        grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    });
}

ShardServer::ShardServer(std::unique_ptr<ShardEngine> engine, ServerOptions options)
    : options_(std::move(options)),
      stage_(std::make_shared<Stage>(std::move(engine), options_.build, options_.artifact_digest, options_.mode,
          NextStages{options_.allowed_next, options_.certificates}, options_.limits)),
      service_(std::make_unique<ShardService>(stage_)) {}

ShardServer::~ShardServer() {
    drain({});
}

// What crosses the network is as private as the prompt.
void check_transport(const ServerOptions & options) {
    static const std::string REMEDY = "without TLS (--tls-cert, --tls-key, --tls-client-ca) or --insecure-plaintext";
    const auto address = Address::parse(options.listen);
    if (!address) {
        throw std::invalid_argument("'" + options.listen + "' is not an address with a port: 127.0.0.1:PORT on loopback, "
            "HOST:PORT, [HOST]:PORT for IPv6");
    }
    if (options.certificates || options.insecure_plaintext) {
        return;
    }
    if (!address->is_loopback()) {
        throw std::invalid_argument("'" + options.listen + "' is not a loopback address, and a worker listens on no other "
            + REMEDY);
    }
    if (options.allowed_next.reaches_beyond_loopback()) {
        throw std::invalid_argument("--allow-next " + options.allowed_next.to_text()
            + " is more than loopback, and a worker connects nowhere else " + REMEDY);
    }
}

// Found out at start, not by the first session.
static void require_authority(const ServerOptions & options, const wire::DescribeResponse & self) {
    if (options.certificates && self.range().last() != self.artifact().n_layer() && !options.certificates->knows_next_stages()) {
        throw TlsError("TLS needs --tls-client-ca or --tls-next-ca",
            "this stage is not the tail, and nothing says which authority signed the certificate of the next one",
            "give --tls-client-ca FILE, or --tls-next-ca FILE where next stages have another authority than clients");
    }
}

void ShardServer::start() {
    check_transport(options_);
    require_authority(options_, stage_->identity());
    enable_plugins();
    credentials_ = options_.certificates ? server_credentials(options_.certificates) : grpc::InsecureServerCredentials();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.listen, credentials_, &port_);
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
    server_->GetHealthCheckService()->SetServingStatus(health_name(), true);
}

const wire::DescribeResponse & ShardServer::identity() const {
    return stage_->identity();
}

StageSnapshot ShardServer::snapshot() const {
    return stage_->snapshot();
}

std::string ShardServer::health_name() const {
    const wire::LayerRange & range = stage_->identity().range();
    return "dgr.shard.v1.Shard/" + std::to_string(range.first()) + "-" + std::to_string(range.last());
}

static void wait_for_sessions(const Stage & stage, const Drain & how) {
    const Instant deadline = std::chrono::steady_clock::now() + how.sessions;
    while (std::chrono::steady_clock::now() < deadline && !(how.hurry && how.hurry())) {
        const wire::StatusResponse status = stage.status();
        if (status.slots_free() == status.slots_total()) {
            return;
        }
        std::this_thread::sleep_for(POLL);
    }
}

bool ShardServer::drain(const Drain & how) {
    if (!server_) {
        stage_->stop();
        return true;
    }
    server_->GetHealthCheckService()->SetServingStatus(false);
    stage_->refuse_sessions();
    wait_for_sessions(*stage_, how);
    stage_->refuse_new_work();
    auto idle = std::make_shared<std::promise<void>>();
    std::future<void> reached = idle->get_future();
    stage_->post([stage = stage_.get(), idle] {  // after what runs and what is queued
        stage->end_all();
        idle->set_value();
    });
    if (reached.wait_for(how.call) != std::future_status::ready) {
        (void) server_.release();  // its calls wait for the engine, and would be waited for
        return false;
    }
    server_->Shutdown(std::chrono::system_clock::now() + STREAMS_END);
    server_->Wait();
    stage_->stop();
    server_.reset();
    return true;
}

}  // namespace dgr

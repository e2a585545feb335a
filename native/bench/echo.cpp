#include "bench/echo.h"

#include "bench/bench-route.h"
#include "echo.grpc.pb.h"

namespace dgr::bench {

class EchoServer::Service final : public Echo::Service {
    grpc::Status Exchange(grpc::ServerContext *, grpc::ServerReaderWriter<Pong, Ping> * stream) override {
        Ping ping;
        while (stream->Read(&ping)) {
            Pong pong;
            pong.set_bytes(ping.data().size());
            stream->Write(pong);
        }
        return grpc::Status::OK;
    }
};

EchoServer::EchoServer() : service_(std::make_unique<Service>()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) {
        throw BenchError("the echo cannot listen");
    }
}

EchoServer::~EchoServer() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
}

std::vector<double> time_echo(const std::string & address, uint64_t bytes, uint32_t count) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxSendMessageSize(-1);
    const auto stub = Echo::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const auto stream = stub->Exchange(&context);
    Ping ping;
    ping.set_data(std::string(bytes, 'x'));
    Pong pong;
    std::vector<double> times;
    while (times.size() < count) {
        const Clock::time_point begin = Clock::now();
        if (!stream->Write(ping) || !stream->Read(&pong)) {
            throw BenchError("the echo at " + address + " does not answer: " + stream->Finish().error_message());
        }
        times.push_back(us_since(begin));
    }
    stream->WritesDone();
    stream->Finish();
    return times;
}

}  // namespace dgr::bench

// A bare gRPC echo: what a frame is held against.

#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dgr::bench {

class EchoServer {
public:
    EchoServer();
    ~EchoServer();

    int port() const { return port_; }

private:
    class Service;
    std::unique_ptr<Service>      service_;
    std::unique_ptr<grpc::Server> server_;
    int port_ = 0;
};

// Microseconds for each of `count` messages of `bytes` bytes on one stream, from sending to the answer.
std::vector<double> time_echo(const std::string & address, uint64_t bytes, uint32_t count);

}  // namespace dgr::bench

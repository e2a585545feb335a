// A stage that serves: the listener, health, reflection, and an orderly end.

#pragma once

#include "dgr/shard-engine.h"
#include "rpc/describe.h"

#include <chrono>
#include <memory>
#include <string>

namespace grpc {
class Server;
}

namespace dgr {

class Stage;
class ShardService;

struct ServerOptions {
    std::string listen = "127.0.0.1:0";  // loopback only
    std::string artifact_digest;         // 64 hex digits
    BuildInfo   build;
    Mode        mode = Mode::exact;
};

class ShardServer {
public:
    // Throws std::invalid_argument for an artifact digest that is none.
    ShardServer(std::unique_ptr<ShardEngine> engine, ServerOptions options);
    ~ShardServer();

    ShardServer(const ShardServer &) = delete;
    ShardServer & operator=(const ShardServer &) = delete;

    // Throws std::invalid_argument for an address that is not on loopback, std::runtime_error when it cannot listen.
    void start();

    int port() const { return port_; }

    // Refuses new work, lets the running frame finish for at most `bound`, and ends every session and stream.
    void drain(std::chrono::milliseconds bound);

private:
    ServerOptions                 options_;
    std::shared_ptr<Stage>        stage_;
    std::unique_ptr<ShardService> service_;
    std::unique_ptr<grpc::Server> server_;
    int                           port_ = 0;
};

}  // namespace dgr

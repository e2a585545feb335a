// A stage that serves: the listener, health, reflection, and an orderly end.

#pragma once

#include "dgr/shard-engine.h"
#include "rpc/address.h"
#include "rpc/certificates.h"
#include "rpc/describe.h"
#include "rpc/limits.h"
#include "rpc/snapshot.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace grpc {
class Server;
class ServerCredentials;
}

namespace dgr {

class Stage;
class ShardService;

struct ServerOptions {
    std::string listen = "127.0.0.1:0";
    std::string artifact_digest;  // 64 hex digits
    BuildInfo   build;
    Mode        mode = Mode::exact;
    AllowList   allowed_next;
    bool        insecure_plaintext = false;  // plaintext may leave this machine
    std::shared_ptr<const Certificates> certificates;  // none: plaintext
    StageLimits limits;
};

// How a worker ends.
struct Drain {
    std::chrono::milliseconds sessions{0};  // for so long, those that are open may go on and close; new ones are refused
    std::chrono::milliseconds call{10000};  // then, for so long, the call that runs may take to finish
    std::function<bool()>     hurry;        // asked now and then; once true, the first of both is over
};

// Throws std::invalid_argument for an address that is none, or that plaintext would leave this machine by. Can be asked
// before a model is loaded; the server asks it too.
void check_transport(const ServerOptions & options);

class ShardServer {
public:
    // Throws std::invalid_argument for an artifact digest that is none.
    ShardServer(std::unique_ptr<ShardEngine> engine, ServerOptions options);
    ~ShardServer();

    ShardServer(const ShardServer &) = delete;
    ShardServer & operator=(const ShardServer &) = delete;

    // Throws what check_transport does, TlsError where there is no authority to check next stages with, and
    // std::runtime_error when it cannot listen.
    void start();

    int port() const { return port_; }

    const wire::DescribeResponse & identity() const;
    StageSnapshot snapshot() const;

    // Refuses new sessions, then new frames, and ends every session and stream. Takes no longer than `how` says, and a
    // second. False: the engine still computes; the process can only end without unwinding.
    bool drain(const Drain & how);

    // The name by which grpc.health.v1 knows a range: "dgr.shard.v1.Shard/FIRST-LAST".
    std::string health_name() const;

private:
    ServerOptions                 options_;
    std::shared_ptr<Stage>        stage_;
    std::unique_ptr<ShardService> service_;
    std::shared_ptr<grpc::ServerCredentials> credentials_;  // gRPC does not keep them, and asks them at each connection
    std::unique_ptr<grpc::Server> server_;
    int                           port_ = 0;
};

}  // namespace dgr

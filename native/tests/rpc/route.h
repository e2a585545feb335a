// Stages in this process on loopback ports, and a plain synchronous client of them.

#pragma once

#include "fake-engine.h"

#include "dgr/shard/v1/shard.grpc.pb.h"
#include "rpc/server.h"
#include "session/prefix-hash.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace dgr {

namespace wire = ::dgr::shard::v1;

const std::string ARTIFACT(64, 'a');  // digest of the artifact that fake stages claim to hold

std::string address_of(int port);
std::shared_ptr<grpc::Channel> connect_to(int port);  // each on a connection of its own

// What connect_to shows and trusts while this lives; plaintext where there is none.
class ConnectsWith {
public:
    explicit ConnectsWith(std::shared_ptr<grpc::ChannelCredentials> credentials);
    ~ConnectsWith();

    ConnectsWith(const ConnectsWith &) = delete;
    ConnectsWith & operator=(const ConnectsWith &) = delete;

private:
    std::shared_ptr<grpc::ChannelCredentials> before_;
};

// The typed detail of a status, if it has one of this type.
template <class Detail>
std::optional<Detail> detail_of(const grpc::Status & status) {
    wire::RpcStatus outer;
    Detail detail;
    if (!outer.ParseFromString(status.error_details()) || outer.details_size() != 1 || !outer.details(0).UnpackTo(&detail)) {
        return std::nullopt;
    }
    return detail;
}

// The field that a status rejects; empty when it rejects none.
std::string rejected_field(const grpc::Status & status);

ServerOptions in_mode(Mode mode);

struct Worker {
    // Of the options, the transport and the mode are used; what it was built from is made up.
    explicit Worker(const FakeSettings & settings, ServerOptions options = {});

    std::shared_ptr<FakeEngine::Knobs>   knobs = std::make_shared<FakeEngine::Knobs>();
    std::unique_ptr<ShardServer>         server;
    int                                  port = 0;
    std::unique_ptr<wire::Shard::Stub>   stub;
    wire::DescribeResponse               about;

    wire::StatusResponse status() const;
};

// Stages that cut the layers at `cuts`: {0, 2, 4} are the stages [0, 2) and [2, 4).
class Route {
public:
    explicit Route(const std::vector<uint32_t> & cuts, FakeSettings settings = {}, const ServerOptions & options = {});

    Worker & head() { return *workers.front(); }
    Worker & tail() { return *workers.back(); }

    // Opens a stage for a session; the request may be spoilt first.
    wire::OpenSessionRequest open_request(size_t stage, const std::string & id, uint64_t epoch, bool chain = false) const;

    std::vector<std::unique_ptr<Worker>> workers;
};

std::string key_of(const std::string & id);
wire::Peer  peer_of(const wire::DescribeResponse & about);

grpc::Status open_session(Worker & worker, const wire::OpenSessionRequest & request);
grpc::Status close_session(Worker & worker, const std::string & id, uint64_t epoch, bool * closed = nullptr);

// The client's side of one session: what it has sent so far.
class Conversation {
public:
    Conversation(Route & route, std::string id, uint64_t epoch = 1, bool chain = false);

    // On every stage, from tail to head.
    grpc::Status open();
    void         close();

    // The next frame; it counts as sent.
    wire::ExecuteRequest next(const std::vector<int32_t> & ids, wire::Logits logits = wire::LOGITS_NONE);

    wire::ExecuteRequest hello() const;
    wire::ResultsRequest results_request(uint64_t from = 0) const;

    Route &     route;
    std::string id;
    uint64_t    epoch;
    bool        chain;
    uint64_t    sequence = 0;
    uint32_t    position = 0;
    Digest      prefix;
};

class ExecuteCall {
public:
    // Says hello as the client of the head.
    explicit ExecuteCall(const Conversation & conversation);
    ExecuteCall(int port, const wire::ExecuteRequest & first);
    ~ExecuteCall();

    bool send(const wire::ExecuteRequest & request) { return stream_->Write(request); }
    bool send_all_done() { return stream_->WritesDone(); }

    // Nothing at the end of the stream.
    std::optional<wire::ExecuteResponse> read();

    // The sequence of the next Executed, passing over nothing else; -1 at the end.
    int64_t executed();

    // Reads to the end.
    grpc::Status end();
    void         cancel() { context_.TryCancel(); }

private:
    grpc::ClientContext context_;
    std::unique_ptr<wire::Shard::Stub> stub_;
    std::unique_ptr<grpc::ClientReaderWriter<wire::ExecuteRequest, wire::ExecuteResponse>> stream_;
    bool ended_ = false;
};

class ResultsCall {
public:
    // Waits for Ready.
    explicit ResultsCall(const Conversation & conversation, uint64_t from = 0);
    ResultsCall(int port, const wire::ResultsRequest & request);
    ~ResultsCall();

    bool ready() const { return ready_; }

    // Nothing at the end of the stream.
    std::optional<wire::Result> next();

    // Reads to the end.
    grpc::Status end();

private:
    grpc::ClientContext context_;
    std::unique_ptr<wire::Shard::Stub> stub_;
    std::unique_ptr<grpc::ClientReader<wire::ResultsResponse>> stream_;
    bool ready_ = false;
    bool ended_ = false;
};

// Prompt and greedy decoding; the frames' tokens and logits must be those of a whole stage.
struct Transcript {
    std::vector<int32_t>     tokens;
    std::vector<std::string> logits;
    std::string              ended;  // how a stream ended that ended too early; says why a comparison fails

    bool operator==(const Transcript & other) const { return tokens == other.tokens && logits == other.logits; }
};

void PrintTo(const Transcript & transcript, std::ostream * out);

// What a whole engine answers, without any network.
Transcript expected(const FakeSettings & settings, const std::vector<std::vector<int32_t>> & prompt, int n_decode);

// The same over the route; both calls stay open.
Transcript converse(Conversation & conversation, ExecuteCall & execute, ResultsCall * results,
                    const std::vector<std::vector<int32_t>> & prompt, int n_decode);

// Waits up to five seconds for something that other threads bring about.
template <class Condition>
bool eventually(Condition condition) {
    for (int i = 0; i < 1000; ++i) {
        if (condition()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

}  // namespace dgr

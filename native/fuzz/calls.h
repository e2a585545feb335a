// Calls without a network: what gRPC would do to the worker's reactors, done by hand and one thing at a time, so that
// a run depends on nothing but its input. gRPC offers these classes for that ("to support mocking").
//
// The reactors of Execute and Results are the worker's own. Of the stream to the next stage, calls.cpp takes the place
// of rpc/next-stage.cpp. The stage calls from its engine thread, the run pumps: hence the locks.

#pragma once

#include "rpc/execute.h"
#include "rpc/next-stage.h"
#include "rpc/results.h"
#include "rpc/stage.h"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace dgr::fuzz {

// The server's half of a stream: one write at a time, one end, nothing after it.
template <class Base, class Response>
class ServerStream : public Base {
public:
    std::function<void(const Response &)>     on_response;
    std::function<void(const grpc::Status &)> on_end;

    bool stalled = false;  // the other side takes nothing
    bool broken  = false;  // writes fail

    bool gone() const { return gone_; }

    void Write(const Response * message, grpc::WriteOptions) override;
    void Finish(grpc::Status status) override;
    void SendInitialMetadata() override {}
    void WriteAndFinish(const Response *, grpc::WriteOptions, grpc::Status) override;

protected:
    // True when a write was answered.
    template <class Reactor>
    bool pump_write(Reactor & reactor);

    // The status once nothing is on its way any more.
    std::optional<grpc::Status> take_end();

    std::mutex                  mutex_;
    const Response *            writing_ = nullptr;
    std::optional<grpc::Status> finished_;
    bool                        gone_ = false;

private:
    grpc::internal::ServerReactor * reactor() override { return nullptr; }  // only gRPC's own counting asks
    void CallOnDone() override {}
};

class ExecuteCall final
    : public ServerStream<grpc::ServerCallbackReaderWriter<wire::ExecuteRequest, wire::ExecuteResponse>, wire::ExecuteResponse> {
public:
    explicit ExecuteCall(std::shared_ptr<Stage> stage);

    void send(wire::ExecuteRequest request) { requests_.push_back(std::move(request)); }
    void half_close() { half_closed_ = true; }
    void cancel() { cancelled_ = true; }
    bool pump();

    bool is_half_closed() const { return half_closed_; }
    bool is_cancelled() const { return cancelled_; }

    void Read(wire::ExecuteRequest * request) override;

private:
    std::shared_ptr<Stage>           stage_;
    ExecuteReactor *                 reactor_;  // deletes itself when done
    std::shared_ptr<ExecuteStream>   stream_;
    std::deque<wire::ExecuteRequest> requests_;
    wire::ExecuteRequest *           reading_ = nullptr;
    bool half_closed_  = false;
    bool half_close_said_ = false;
    bool cancelled_    = false;
    bool cancel_said_  = false;
};

class ResultsCall final : public ServerStream<grpc::ServerCallbackWriter<wire::ResultsResponse>, wire::ResultsResponse> {
public:
    ResultsCall(const std::shared_ptr<Stage> & stage, const wire::ResultsRequest & request);

    void cancel() { cancelled_ = true; }
    bool pump();

private:
    ResultsReactor * reactor_;  // deletes itself when done
    bool cancelled_   = false;
    bool cancel_said_ = false;
};

// A stage's stream to the one after it.
class NextCall final : public grpc::ClientCallbackReaderWriter<wire::ExecuteRequest, wire::ExecuteResponse> {
public:
    NextCall(NextStage * reactor, std::string address);

    std::function<void(const wire::ExecuteRequest &)> on_request;
    std::function<void()>                             on_writes_done;
    std::function<void()>                             on_cancel;

    bool stalled = false;
    bool broken  = false;

    const std::string & address() const { return address_; }
    bool gone() const { return gone_; }
    bool is_cancelled();

    void respond(wire::ExecuteResponse response) { responses_.push_back(std::move(response)); }
    void end(grpc::Status status) { end_ = end_.has_value() ? end_ : std::move(status); }
    bool pump();
    void cancelled_by_stage();

    void StartCall() override {}
    void Write(const wire::ExecuteRequest * request, grpc::WriteOptions) override;
    void WritesDone() override;
    void Read(wire::ExecuteResponse * response) override;
    void AddHold(int holds) override;
    void RemoveHold() override;

private:
    bool pump_write();
    bool pump_read();

    NextStage *   reactor_;
    std::string   address_;
    std::mutex    mutex_;
    const wire::ExecuteRequest * writing_ = nullptr;
    wire::ExecuteResponse *      reading_ = nullptr;
    int  holds_       = 0;
    bool writes_done_ = false;
    bool writes_done_said_ = false;
    bool cancelled_   = false;
    bool cancel_said_ = false;
    bool read_ended_  = false;
    bool gone_        = false;
    std::deque<wire::ExecuteResponse> responses_;
    std::optional<grpc::Status>       end_;
};

// Streams that stages have opened since the last call.
std::vector<std::unique_ptr<NextCall>> take_dialled();

}  // namespace dgr::fuzz

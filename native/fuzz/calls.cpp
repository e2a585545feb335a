#include "calls.h"

#include "require.h"

#include <map>

namespace dgr::fuzz {

template <class Base, class Response>
void ServerStream<Base, Response>::Write(const Response * message, grpc::WriteOptions) {
    std::lock_guard<std::mutex> lock(mutex_);
    require(writing_ == nullptr, "a second write while one is outstanding");
    require(!finished_.has_value(), "a write after the end");
    writing_ = message;
}

template <class Base, class Response>
void ServerStream<Base, Response>::Finish(grpc::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    require(!finished_.has_value(), "a second end of one call");
    require(writing_ == nullptr, "an end while a write is outstanding");
    finished_ = std::move(status);
}

template <class Base, class Response>
void ServerStream<Base, Response>::WriteAndFinish(const Response *, grpc::WriteOptions, grpc::Status) {
    require(false, "the worker does not use WriteAndFinish");
}

template <class Base, class Response>
template <class Reactor>
bool ServerStream<Base, Response>::pump_write(Reactor & reactor) {
    Response message;
    bool     ok = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (writing_ == nullptr || (stalled && !broken)) {
            return false;
        }
        message  = *writing_;  // only now: it must have stayed alive
        writing_ = nullptr;
        ok       = !broken;
    }
    if (ok && on_response) {
        on_response(message);
    }
    reactor.OnWriteDone(ok);
    return true;
}

template <class Base, class Response>
std::optional<grpc::Status> ServerStream<Base, Response>::take_end() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!finished_.has_value() || gone_) {
        return std::nullopt;
    }
    gone_ = true;
    return finished_;
}

ExecuteCall::ExecuteCall(std::shared_ptr<Stage> stage)
    : stage_(std::move(stage)), reactor_(new ExecuteReactor(stage_)), stream_(reactor_->stream()) {
    BindReactor(reactor_);
}

void ExecuteCall::Read(wire::ExecuteRequest * request) {
    std::lock_guard<std::mutex> lock(mutex_);
    require(reading_ == nullptr, "a second read while one is outstanding");
    require(!finished_.has_value(), "a read after the end");
    reading_ = request;
}

bool ExecuteCall::pump() {
    if (gone_) {
        return false;
    }
    bool moved = false;
    if (cancelled_ && !cancel_said_) {
        cancel_said_ = moved = true;
        broken = true;
        reactor_->OnCancel();
    }
    moved = pump_write(*reactor_) || moved;
    bool read = false;
    bool last = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const bool open = reading_ != nullptr && !finished_.has_value() && !cancelled_;
        read = open && !requests_.empty();
        last = open && requests_.empty() && half_closed_ && !half_close_said_;
        if (read) {
            *reading_ = std::move(requests_.front());
            requests_.pop_front();
            reading_ = nullptr;
        }
    }
    if (read) {
        reactor_->OnReadDone(true);
    } else if (last) {
        half_close_said_ = true;  // as OnReadDone(false) does after its patience
        stage_->post([raw = stage_.get(), stream = stream_] { raw->reads_done(stream); });
    }
    moved = moved || read || last;
    if (const auto status = take_end()) {
        if (on_end) {
            on_end(*status);
        }
        reactor_->OnDone();
        moved = true;
    }
    return moved;
}

ResultsCall::ResultsCall(const std::shared_ptr<Stage> & stage, const wire::ResultsRequest & request)
    : reactor_(new ResultsReactor(stage, request)) {
    BindReactor(reactor_);
}

bool ResultsCall::pump() {
    if (gone_) {
        return false;
    }
    bool moved = false;
    if (cancelled_ && !cancel_said_) {
        cancel_said_ = moved = true;
        broken = true;
        reactor_->OnCancel();
    }
    moved = pump_write(*reactor_) || moved;
    if (const auto status = take_end()) {
        if (on_end) {
            on_end(*status);
        }
        reactor_->OnDone();
        moved = true;
    }
    return moved;
}

NextCall::NextCall(NextStage * reactor, std::string address) : reactor_(reactor), address_(std::move(address)) {
    BindReactor(reactor);
}

bool NextCall::is_cancelled() {
    std::lock_guard<std::mutex> lock(mutex_);
    return cancelled_;
}

void NextCall::cancelled_by_stage() {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
}

void NextCall::Write(const wire::ExecuteRequest * request, grpc::WriteOptions) {
    std::lock_guard<std::mutex> lock(mutex_);
    require(writing_ == nullptr, "a second write to the next stage while one is outstanding");
    require(!writes_done_, "a write to the next stage after the last");
    require(holds_ > 0, "a write to the next stage after its hold was given up");
    writing_ = request;
}

void NextCall::WritesDone() {
    std::lock_guard<std::mutex> lock(mutex_);
    require(!writes_done_, "a second half-close of the stream to the next stage");
    require(writing_ == nullptr, "a half-close while a write is outstanding");
    writes_done_ = true;
}

void NextCall::Read(wire::ExecuteResponse * response) {
    std::lock_guard<std::mutex> lock(mutex_);
    require(reading_ == nullptr, "a second read from the next stage while one is outstanding");
    reading_ = response;
}

void NextCall::AddHold(int holds) {
    std::lock_guard<std::mutex> lock(mutex_);
    holds_ += holds;
}

void NextCall::RemoveHold() {
    std::lock_guard<std::mutex> lock(mutex_);
    require(holds_ > 0, "a hold that is not held is given up");
    --holds_;
}

bool NextCall::pump_write() {
    wire::ExecuteRequest message;
    bool ok = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const bool ending = cancelled_ || end_.has_value() || broken;
        if (writing_ == nullptr || (stalled && !ending)) {
            return false;
        }
        message  = *writing_;
        writing_ = nullptr;
        ok       = !ending;
    }
    if (ok && on_request) {
        on_request(message);
    }
    reactor_->OnWriteDone(ok);
    return true;
}

bool NextCall::pump_read() {
    bool ok = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (reading_ == nullptr) {
            return false;
        }
        ok = !cancelled_ && !responses_.empty();
        if (!ok && !cancelled_ && !end_.has_value()) {
            return false;
        }
        if (ok) {
            *reading_ = std::move(responses_.front());
            responses_.pop_front();
        } else {
            read_ended_ = true;
        }
        reading_ = nullptr;
    }
    reactor_->OnReadDone(ok);
    return true;
}

bool NextCall::pump() {
    if (gone_) {
        return false;
    }
    bool moved = pump_write();
    moved = pump_read() || moved;
    bool say_done = false;
    bool say_cancel = false;
    bool over = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        say_cancel = cancelled_ && !cancel_said_;
        say_done   = writes_done_ && !writes_done_said_ && !cancelled_;
        cancel_said_ = cancel_said_ || say_cancel;
        writes_done_said_ = writes_done_said_ || say_done;
        over = (cancelled_ || end_.has_value()) && read_ended_ && writing_ == nullptr && holds_ == 0;
    }
    if (say_done && on_writes_done) {
        on_writes_done();
    }
    if (say_cancel && on_cancel) {
        on_cancel();
    }
    if (over) {
        gone_ = true;
        reactor_->OnDone(end_.has_value() && !cancelled_ ? *end_ : grpc::Status::CANCELLED);
    }
    return moved || say_done || say_cancel || over;
}

namespace {

// Calls as the stages make them, on their engine threads.
struct Dialled {
    std::mutex                             mutex;
    std::map<const NextStage *, NextCall *> by_reactor;
    std::vector<std::unique_ptr<NextCall>> fresh;
};

Dialled & dialled() {
    static Dialled all;
    return all;
}

thread_local std::string address_dialled;  // by `connect`; `start` follows it

}  // namespace

std::vector<std::unique_ptr<NextCall>> take_dialled() {
    std::lock_guard<std::mutex> lock(dialled().mutex);
    return std::move(dialled().fresh);
}

}  // namespace dgr::fuzz

// ------------------------------------------------------------------- in the place of rpc/next-stage.cpp

namespace dgr {

std::shared_ptr<grpc::Channel> connect(const std::string & address, const NextStages &, uint64_t) {
    fuzz::address_dialled = address;
    return nullptr;
}

NextStage::NextStage(const std::shared_ptr<grpc::Channel> &, Events events) : events_(std::move(events)), gate_(this) {}

std::shared_ptr<NextStage> NextStage::start(const std::shared_ptr<grpc::Channel> & channel, wire::ExecuteRequest hello, Events events) {
    std::shared_ptr<NextStage> stage(new NextStage(channel, std::move(events)));
    stage->self_ = stage;
    auto call = std::make_unique<fuzz::NextCall>(stage.get(), fuzz::address_dialled);
    {
        std::lock_guard<std::mutex> lock(fuzz::dialled().mutex);
        fuzz::dialled().by_reactor[stage.get()] = call.get();
        fuzz::dialled().fresh.push_back(std::move(call));
    }
    stage->AddHold();
    stage->StartRead(&stage->response_);
    stage->StartCall();
    stage->send(std::move(hello));
    return stage;
}

void NextStage::cancel() {
    {
        std::lock_guard<std::mutex> lock(fuzz::dialled().mutex);
        const auto found = fuzz::dialled().by_reactor.find(this);
        if (found != fuzz::dialled().by_reactor.end()) {
            found->second->cancelled_by_stage();
        }
    }
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
        gate_.end(grpc::Status::CANCELLED);
        return;
    }
    events_.response(std::move(response_));
    response_.Clear();
    StartRead(&response_);
}

void NextStage::OnDone(const grpc::Status & status) {
    {
        std::lock_guard<std::mutex> lock(fuzz::dialled().mutex);
        fuzz::dialled().by_reactor.erase(this);
    }
    events_.closed(status);
    const std::shared_ptr<NextStage> last = std::move(self_);
}

}  // namespace dgr

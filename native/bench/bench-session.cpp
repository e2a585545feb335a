#include "bench/bench-session.h"

#include <algorithm>
#include <random>

namespace dgr::bench {

static constexpr auto PATIENCE = std::chrono::seconds(30);

static std::string random_bytes(size_t count) {
    std::random_device device;
    std::string bytes(count, '\0');
    for (char & byte : bytes) {
        byte = static_cast<char>(device());
    }
    return bytes;
}

static std::string new_id() {
    return "bench-" + as_hex(sha256(random_bytes(32))).substr(0, 24);
}

BenchSession::BenchSession(const BenchRoute & route, uint32_t n_ctx) : stages_(route.stages), n_ctx_(n_ctx) {
    sender_.set_client(true);
    open();
}

BenchSession::BenchSession(const BenchStage & tail, uint32_t n_ctx) : stages_{tail}, n_ctx_(n_ctx) {
    // A stage takes frames from the one that the opener names: here somebody who agrees with it in everything.
    sender_ = tail.peer();
    sender_.set_instance(new_id());
    sender_.mutable_range()->set_first(0);
    sender_.mutable_range()->set_last(tail.about.range().first());
    open();
}

BenchSession::~BenchSession() {
    if (execute_) {
        execute_context_.TryCancel();
    }
    if (results_) {
        results_context_.TryCancel();
        wire::ResultsResponse rest;
        while (results_->Read(&rest)) {
        }
        results_->Finish();
    }
    if (reader_.joinable()) {
        reader_.join();
    }
    for (const auto & stub : stubs_) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + PATIENCE);
        wire::CloseSessionRequest request;
        request.set_session(id_);
        request.set_epoch(1);
        request.set_key(key_);
        wire::CloseSessionResponse response;
        stub->CloseSession(&context, request, &response);
    }
}

void BenchSession::open() {
    id_     = new_id();
    key_    = random_bytes(32);
    prefix_ = prefix_start(digest_from_hex(stages_.front().about.artifact().digest()));
    max_inflight_ = std::max(1u, stages_.front().about.limits().max_inflight_frames());
    for (const BenchStage & stage : stages_) {
        stubs_.push_back(stage.connect());
    }
    for (size_t index = stages_.size(); index-- > 0;) {
        open_stage(index);
    }

    results_stub_ = stages_.back().connect();
    wire::ResultsRequest request;
    request.set_session(id_);
    request.set_epoch(1);
    request.set_key(key_);
    results_ = results_stub_->Results(&results_context_, request);
    wire::ResultsResponse ready;
    if (!results_->Read(&ready) || !ready.has_ready()) {
        throw BenchError(stages_.back().name() + " gives no results");
    }

    execute_stub_ = stages_.front().connect();
    execute_      = execute_stub_->Execute(&execute_context_);
    reader_       = std::thread([this] { read_credit(); });
    wire::ExecuteRequest hello;
    hello.set_session(id_);
    hello.set_epoch(1);
    *hello.mutable_hello()->mutable_sender() = sender_;
    hello.mutable_hello()->set_key(key_);
    execute_->Write(hello);
}

void BenchSession::open_stage(size_t index) {
    const BenchStage & stage = stages_[index];
    const wire::DescribeResponse & about = stage.about;
    wire::OpenSessionRequest request;
    request.set_session(id_);
    request.set_epoch(1);
    request.set_key(key_);
    request.set_artifact_digest(about.artifact().digest());
    *request.mutable_range() = about.range();
    request.set_numerics_digest(about.numerics().digest());
    wire::CacheExpectation & cache = *request.mutable_cache();
    cache.set_type_k(about.numerics().type_k());
    cache.set_type_v(about.numerics().type_v());
    cache.set_n_ctx(n_ctx_);
    cache.set_n_ubatch(about.numerics().n_ubatch());
    cache.set_flash_attn(about.numerics().flash_attn());
    cache.set_state_schema_version(about.state_schema_version());
    *request.mutable_predecessor() = index == 0 ? sender_ : stages_[index - 1].peer();
    if (index + 1 < stages_.size()) {
        *request.mutable_successor() = stages_[index + 1].peer();
        request.set_successor_address(stages_[index + 1].address);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    wire::OpenSessionResponse response;
    const grpc::Status status = stubs_[index]->OpenSession(&context, request, &response);
    if (!status.ok()) {
        throw BenchError(stage.name() + " opens no session: " + status.error_message());
    }
}

wire::ExecuteRequest BenchSession::frame(const int32_t * ids, uint32_t rows, bool want_token) {
    wire::ExecuteRequest request;
    request.set_session(id_);
    request.set_epoch(1);
    wire::Frame & frame = *request.mutable_frame();
    frame.set_sequence(sequence_);
    frame.set_first_position(position_);
    frame.mutable_token_ids()->Add(ids, ids + rows);
    frame.set_prefix_hash_before(std::string(as_bytes(prefix_)));
    prefix_ = prefix_next(prefix_, ids, rows);
    frame.set_prefix_hash_after(std::string(as_bytes(prefix_)));
    frame.set_want_token(want_token);
    ++sequence_;
    position_ += rows;
    return request;
}

void BenchSession::send(const wire::ExecuteRequest & request) {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        credit_.wait(lock, [&] { return ended_ || request.frame().sequence() - executed_ < max_inflight_; });
    }
    if (!execute_->Write(request)) {
        fail("takes no more frames");
    }
}

wire::Result BenchSession::receive(uint64_t sequence) {
    wire::ResultsResponse response;
    while (results_->Read(&response)) {
        if (response.has_result() && response.result().sequence() == sequence) {
            return response.result();
        }
    }
    fail("ended its results before frame " + std::to_string(sequence));
}

void BenchSession::read_credit() {
    wire::ExecuteResponse response;
    while (execute_->Read(&response)) {
        if (response.has_executed()) {
            std::lock_guard<std::mutex> lock(mutex_);
            executed_ = response.executed().sequence() + 1;
            credit_.notify_one();
        }
    }
    const grpc::Status status = execute_->Finish();
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    end_   = status.error_message();
    credit_.notify_one();
}

void BenchSession::fail(const std::string & what) {
    std::unique_lock<std::mutex> lock(mutex_);  // the head's own words outrank what the tail's silence shows
    credit_.wait_for(lock, std::chrono::seconds(1), [this] { return ended_; });
    throw BenchError("the route " + what + (end_.empty() ? "" : ": " + end_));
}

}  // namespace dgr::bench

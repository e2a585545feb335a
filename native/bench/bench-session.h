// One session on a route: opened on every stage, frames to the head, results from the tail.
//
// Written for little cost of its own: frames are written and results read by the calling thread, only credit is
// taken by another.

#pragma once

#include "bench/bench-route.h"
#include "session/prefix-hash.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dgr::bench {

class BenchSession {
public:
    // `n_ctx`: the positions that it may need.
    BenchSession(const BenchRoute & route, uint32_t n_ctx);
    // The tail alone, with the client in the place of its predecessor.
    BenchSession(const BenchStage & tail, uint32_t n_ctx);
    ~BenchSession();

    BenchSession(const BenchSession &) = delete;
    BenchSession & operator=(const BenchSession &) = delete;

    // The next frame; it counts as sent, so it must be sent next.
    wire::ExecuteRequest frame(const int32_t * ids, uint32_t rows, bool want_token);

    // Waits for credit.
    void send(const wire::ExecuteRequest & request);

    // The result of the frame with this sequence.
    wire::Result receive(uint64_t sequence);

    uint32_t position() const { return position_; }
    uint64_t sent() const { return sequence_; }

private:
    void open_stage(size_t index);
    void open();
    void read_credit();
    [[noreturn]] void fail(const std::string & what);

    std::vector<BenchStage> stages_;
    uint32_t    n_ctx_;
    std::string id_;
    std::string key_;
    wire::Peer  sender_;
    uint32_t    max_inflight_ = 1;
    uint64_t    sequence_ = 0;
    uint32_t    position_ = 0;
    Digest      prefix_{};

    std::vector<std::unique_ptr<wire::Shard::Stub>> stubs_;  // of each stage, for plain calls
    std::unique_ptr<wire::Shard::Stub> results_stub_;
    std::unique_ptr<wire::Shard::Stub> execute_stub_;
    grpc::ClientContext results_context_;
    grpc::ClientContext execute_context_;
    std::unique_ptr<grpc::ClientReader<wire::ResultsResponse>> results_;
    std::unique_ptr<grpc::ClientReaderWriter<wire::ExecuteRequest, wire::ExecuteResponse>> execute_;

    std::mutex mutex_;
    std::condition_variable credit_;
    uint64_t executed_ = 0;  // frames
    bool     ended_ = false;
    std::string end_;        // why, as the head says it
    std::thread reader_;
};

}  // namespace dgr::bench

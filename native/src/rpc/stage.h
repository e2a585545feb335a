// The stage itself: its sessions, its engine, and what becomes of each frame. Everything but the constructor, post,
// identity and status runs on the engine thread, so nothing here needs a lock.

#pragma once

#include "dgr/shard-engine.h"
#include "rpc/describe.h"
#include "rpc/engine-thread.h"
#include "rpc/execute.h"
#include "rpc/limits.h"
#include "rpc/next-stage.h"
#include "rpc/results.h"
#include "rpc/snapshot.h"
#include "rpc/stage-events.h"
#include "rpc/timing.h"
#include "session/frame-check.h"
#include "session/session-table.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace dgr {

class Stage : public std::enable_shared_from_this<Stage> {
public:
    Stage(std::unique_ptr<ShardEngine> engine, const BuildInfo & build, const std::string & artifact_digest, Mode mode,
          NextStages next_stages, const StageLimits & limits = {});

    // ---- any thread
    void post(std::function<void()> task) { thread_.post(std::move(task)); }
    const wire::DescribeResponse & identity() const { return identity_; }
    StageSnapshot snapshot() const;
    wire::StatusResponse status() const { return snapshot().status; }
    uint64_t message_limit() const { return message_limit_; }
    const NextStages & next_stages() const { return next_stages_; }
    std::shared_ptr<grpc::Channel> connect_next(const std::string & address) const { return connect(address, next_stages_, message_limit_); }
    StageEvents & events() { return *events_; }
    void refuse_sessions() { draining_ = true; }
    void refuse_new_work() { draining_ = ending_ = true; }  // frames too
    void stop() { thread_.stop(); }

    // ---- engine thread
    ShardEngine & engine() { return *engine_; }
    grpc::Status open(const wire::OpenSessionRequest & request, wire::OpenSessionResponse & response);
    grpc::Status close(const wire::CloseSessionRequest & request, wire::CloseSessionResponse & response);
    void take(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival);
    void reads_done(const std::shared_ptr<ExecuteStream> & stream);
    void stream_gone(const std::shared_ptr<ExecuteStream> & stream);
    void attach_results(const std::shared_ptr<ResultsStream> & stream, const wire::ResultsRequest & request);
    void results_gone(const std::shared_ptr<ResultsStream> & stream);
    void end_all();  // ends every session; its streams learn that this worker is draining

private:
    // Where a session's messages come from and go to.
    struct Streams {
        std::shared_ptr<ExecuteStream> upstream;
        std::shared_ptr<NextStage>     next;
        bool                           had_next = false;  // at any time
        std::shared_ptr<ResultsStream> results;
    };

    // A frame on its way through.
    struct Passage {
        Session &           session;
        const wire::Frame & frame;
        Instant             arrived;
    };

    // A frame that waits for its turn in the engine.
    struct Turn {
        std::shared_ptr<ExecuteStream> stream;
        Arrival                        arrival;
    };

    // A frame as the engine takes it, with what it points into.
    struct Ready {
        Passage            passage;
        EngineFrame        frame;
        std::vector<float> boundary;  // protobuf's bytes need not be aligned for floats
    };

    void hello(const std::shared_ptr<ExecuteStream> & stream, const wire::ExecuteRequest & request);
    void frame(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival);
    void refuse(ExecuteStream & stream, uint64_t sequence, Refusal why, const grpc::Status & status);  // ends the stream
    void count_refused(const ExecuteStream & stream, uint64_t sequence, Refusal why, const grpc::Status & status);
    bool must_wait(const ExecuteStream & stream);
    void resume(const std::string & id);
    void half_close(const std::shared_ptr<ExecuteStream> & stream);
    void executed(ExecuteStream & stream, uint64_t sequence);
    void run(const Passage & passage);
    void queue(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival);
    void run_queued();
    void post_turn();
    Session * session_of(const Turn & turn);
    std::vector<Turn> take_turns();
    bool make_ready(Ready & ready);
    void run_ready(std::vector<Ready> & ready);
    void run_call(std::vector<Ready>::iterator begin, std::vector<Ready>::iterator end);
    void advance(const Passage & passage, const EngineOutput & output, uint64_t compute_us);
    void answer(const KeptAnswer & kept, const Passage & passage);
    void forward(const KeptAnswer & kept, const Passage & passage);
    void deliver(const std::shared_ptr<const wire::Result> & result, Session & session);
    void send_kept(const KeptAnswer & kept, const Session & session, uint32_t remaining_ms);
    bool ensure_next(Session & session, uint32_t remaining_ms);
    void next_response(const std::string & id, uint64_t epoch, const wire::ExecuteResponse & response);
    void next_closed(const std::string & id, uint64_t epoch, const grpc::Status & status);

    grpc::Status failure(const Session & session, const wire::LayerRange & range, grpc::StatusCode code, const std::string & cause) const;
    grpc::Status miss(const Session * session, const std::string & reason) const;
    void drop(std::string id, const grpc::Status & status);  // ends the epoch and gives the slot back

    // ---- stage-leases.cpp
    void renew(const std::string & id);           // a sign of life
    void renew_and_watch(const std::string & id); // one after which the lease may end sooner than before
    Instant lease_end(const Session & session) const;
    bool is_owed(const Session & session) const;
    void pass_on_sign_of_life(const Session & session);
    void expire_leases(Instant now);

    void count_sessions();

    std::unique_ptr<ShardEngine> engine_;
    const NextStages             next_stages_;
    wire::DescribeResponse       identity_;
    std::unique_ptr<StageEvents> events_;
    FrameRules                   rules_;
    uint64_t                     message_limit_ = 0;
    Mode                         mode_;
    StageLimits                  limits_;
    SessionTable                 table_;
    std::deque<Turn>             turns_;  // in order of arrival, one a stream
    bool                         turn_comes_ = false;  // run_queued is posted
    std::map<std::string, Streams> streams_;

    Instant started_ = std::chrono::steady_clock::now();
    std::atomic<bool>     draining_{false};
    std::atomic<bool>     ending_{false};
    std::atomic<uint32_t> slots_free_{0};
    std::atomic<uint64_t> executed_frames_{0};
    std::atomic<uint64_t> executed_rows_{0};
    std::atomic<uint64_t> failed_frames_{0};
    std::atomic<uint64_t> newest_epoch_{0};
    StageCounters         counters_;

    EngineThread thread_;  // last: it stops before anything it uses goes
};

}  // namespace dgr

// Sessions and streams of a stage; frames are in stage-frames.cpp.

#include "rpc/stage.h"

#include "rpc/sampling.h"
#include "rpc/status.h"

#include <openssl/rand.h>

#include <algorithm>
#include <stdexcept>

namespace dgr {

using grpc::StatusCode;

static std::string random_instance() {
    Digest bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
        throw std::runtime_error("no randomness for the instance name");
    }
    return as_hex(bytes).substr(0, 32);
}

Stage::Stage(std::unique_ptr<ShardEngine> engine, const BuildInfo & build, const std::string & artifact_digest, Mode mode,
    NextStages next_stages, const StageLimits & limits)
    : engine_(std::move(engine)), mode_(mode), next_stages_(std::move(next_stages)) {
    const EngineDescription & description = engine_->describe();
    digest_from_hex(artifact_digest);  // refuses anything else
    identity_      = describe(description, build, artifact_digest, random_instance(), mode);
    events_        = std::make_unique<StageEvents>(identity_.range());
    rules_         = {description.is_head(), description.is_tail(), description.numerics.n_ubatch, description.n_vocab, description.boundary.width};
    message_limit_ = max_message_bytes(description);
    limits_        = limits;
    state_limits(*identity_.mutable_limits(), limits_, description);
    thread_.on_alarm([this](Instant at) { expire_leases(at); });
    count_sessions();
}

StageSnapshot Stage::snapshot() const {
    StageSnapshot snapshot = read_counters(counters_);
    wire::StatusResponse & out = snapshot.status;
    out.set_schema_version(1);
    out.set_instance(identity_.instance());
    *out.mutable_range() = identity_.range();
    uint32_t total = 0;
    for (const wire::SlotClass & slots : identity_.slot_classes()) {
        total += slots.slots();
    }
    out.set_slots_total(total);
    out.set_slots_free(slots_free_);
    out.set_queued_frames(static_cast<uint32_t>(thread_.queued()));
    out.set_executed_frames(executed_frames_);
    out.set_executed_rows(executed_rows_);
    out.set_failed_frames(failed_frames_);
    out.set_seam_bytes_per_token(static_cast<uint64_t>(rules_.width) * sizeof(float));
    out.set_uptime_us(us_between(started_, std::chrono::steady_clock::now()));
    out.set_draining(draining_);
    out.set_certification("uncertified");
    out.set_newest_epoch(newest_epoch_);
    return snapshot;
}

void Stage::count_sessions() {
    uint32_t total = 0;
    for (const SlotClass & slots : engine_->describe().slot_classes) {
        total += slots.slots;
    }
    slots_free_ = total - static_cast<uint32_t>(table_.size());
    uint64_t newest = 0;
    for (const auto & [id, session] : table_.all()) {
        newest = std::max(newest, session.epoch);
    }
    newest_epoch_ = newest;
}

static grpc::Status no_slot(uint32_t n_ctx, uint32_t most) {
    return rejected(StatusCode::RESOURCE_EXHAUSTED, "cache.n_ctx", "no free slot of " + std::to_string(n_ctx) + " positions",
        "the largest free slot has " + std::to_string(most));
}

grpc::Status Stage::open(const wire::OpenSessionRequest & request, wire::OpenSessionResponse & response) {
    if (draining_) {
        return {StatusCode::UNAVAILABLE, "this worker is draining"};
    }
    switch (table_.claim(request.session(), request.epoch(), request.key())) {
        case Claim::foreign:
            return rejected(StatusCode::PERMISSION_DENIED, "key", "is not the one that opened this session");
        case Claim::stale:
            return miss(table_.find(request.session()), "epoch " + std::to_string(request.epoch()) + " is not above the one held");
        case Claim::replaces:
            // Its own slot is free then; what is refused must not have cost the session.
            if (const uint32_t most = std::max(engine_->largest_free(), engine_->slot_n_ctx(table_.find(request.session())->slot));
                request.cache().n_ctx() > most) {
                return no_slot(request.cache().n_ctx(), most);
            }
            drop(request.session(), {StatusCode::ABORTED, "replaced by epoch " + std::to_string(request.epoch())});
            break;
        case Claim::fresh:
            break;
    }
    const int32_t slot = engine_->open(request.cache().n_ctx());
    if (slot < 0) {
        return no_slot(request.cache().n_ctx(), engine_->largest_free());
    }
    if (request.has_sampling()) {
        const Sampling sampling = from_wire(request.sampling());
        try {
            engine_->sample_with(static_cast<uint32_t>(slot), sampling);
        } catch (...) {
            engine_->close(static_cast<uint32_t>(slot));
            throw;
        }
        *response.mutable_sampling() = to_wire(sampling);
    }
    Session session;
    session.id                = request.session();
    session.key               = request.key();
    session.epoch             = request.epoch();
    session.slot              = static_cast<uint32_t>(slot);
    session.n_ctx             = request.cache().n_ctx();
    session.predecessor       = request.predecessor();
    session.successor         = request.successor();
    session.successor_address = request.successor_address();
    session.results_chain     = request.results_chain();
    session.prefix            = prefix_start(digest_from_hex(identity_.artifact().digest()));
    response.set_slot(session.slot);
    response.set_n_ctx(session.n_ctx);
    response.set_prefix_hash(std::string(as_bytes(session.prefix)));
    table_.put(std::move(session));
    count_sessions();
    renew_and_watch(request.session());
    return grpc::Status::OK;
}

grpc::Status Stage::close(const wire::CloseSessionRequest & request, wire::CloseSessionResponse & response) {
    Session * session = table_.find(request.session());
    if (session == nullptr || session->epoch != request.epoch()) {
        response.set_closed(false);  // an older or unknown epoch touches nothing
        return grpc::Status::OK;
    }
    if (!same_key(session->key, request.key())) {
        return rejected(StatusCode::PERMISSION_DENIED, "key", "is not the one that opened this session");
    }
    drop(request.session(), {StatusCode::ABORTED, "the session was closed"});
    response.set_closed(true);
    return grpc::Status::OK;
}

// By value: callers name the session by its own id, which goes with it.
void Stage::drop(std::string id, const grpc::Status & status) {
    Session * session = table_.find(id);
    if (session == nullptr) {
        return;
    }
    events_->session_ended(*session, status);
    engine_->close(session->slot);
    table_.erase(id);
    count_sessions();  // before anyone hears of it
    const auto node = streams_.extract(id);
    if (!node.empty()) {
        const Streams & streams = node.mapped();
        if (streams.next) {
            streams.next->cancel();
        }
        if (streams.upstream) {
            streams.upstream->gate.end(status);
        }
        if (streams.results) {
            streams.results->gate.end({StatusCode::ABORTED, status.error_message(), status.error_details()});
        }
    }
}

void Stage::end_all() {
    while (!table_.all().empty()) {
        const Session & session = table_.all().begin()->second;
        drop(session.id, failure(session, identity_.range(), StatusCode::UNAVAILABLE, "draining"));
    }
}

grpc::Status Stage::failure(const Session & session, const wire::LayerRange & range, StatusCode code, const std::string & cause) const {
    wire::Failure detail;
    detail.set_stage(identity_.instance());
    *detail.mutable_range() = range;
    detail.set_epoch(session.epoch);
    detail.set_sequence(session.next_sequence);
    detail.set_cause(cause);
    return with_detail(code, "stage " + to_text(range) + ": " + cause, detail);
}

grpc::Status Stage::miss(const Session * session, const std::string & reason) const {
    wire::CacheMiss detail;
    if (session != nullptr) {
        detail.set_held_epoch(session->epoch);
        detail.set_held_sequence(session->next_sequence);
        detail.set_held_position(session->next_position);
        detail.set_held_prefix_hash(std::string(as_bytes(session->prefix)));
    }
    return with_detail(StatusCode::FAILED_PRECONDITION, "cache miss: " + reason, detail);
}

void Stage::take(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival) {
    if (stream->cancelled || stream->gate.ended()) {
        return;
    }
    if (must_wait(*stream)) {
        stream->waiting.push_back(arrival);
        return;
    }
    const wire::ExecuteRequest & request = *arrival.request;
    if (request.has_frame()) {
        renew(stream->session);
    }
    if (request.has_hello() && stream->session.empty()) {
        hello(stream, request);
    } else if (request.has_frame() && !stream->session.empty()) {
        frame(stream, arrival);
    } else {
        refuse(*stream, request.frame().sequence(), Refusal::order,
            rejected(StatusCode::INVALID_ARGUMENT, "body", "out of order", "one hello, then frames"));
    }
    renew(stream->session);  // after a hello; after a frame that may have computed for long
    stream->dealt_with();
}

// A frame waits for its turn, or the next stage has not yet executed as many frames as may be on their way to it.
bool Stage::must_wait(const ExecuteStream & stream) {
    if (stream.has_more()) {
        return true;
    }
    const Session * session = rules_.is_tail || stream.session.empty() ? nullptr : table_.find(stream.session);
    return session != nullptr && session->epoch == stream.epoch && session->kept.size() >= MAX_INFLIGHT_FRAMES;
}

// Takes what waited, as far as credit goes.
void Stage::resume(const std::string & id) {
    const auto found = streams_.find(id);
    const std::shared_ptr<ExecuteStream> stream = found == streams_.end() ? nullptr : found->second.upstream;
    if (stream == nullptr) {
        return;
    }
    std::deque<Arrival> waiting = std::move(stream->waiting);
    stream->waiting.clear();
    for (const Arrival & arrival : waiting) {
        take(stream, arrival);
    }
    if (stream->half_closed && !stream->has_more()) {
        half_close(stream);
    }
}

void Stage::hello(const std::shared_ptr<ExecuteStream> & stream, const wire::ExecuteRequest & request) {
    Session * session = table_.find(request.session());
    const auto refuse_stream = [&](const grpc::Status & status) {
        events_->stream_refused("execute", {request.session(), request.epoch(), stream->peer}, status);
        stream->gate.end(status);
    };
    if (session == nullptr || session->epoch != request.epoch()) {
        refuse_stream(miss(session, session == nullptr ? "no such session here" : "another epoch is held"));
        return;
    }
    const wire::ExecuteHello & hello = request.hello();
    const wire::Peer & expected = session->predecessor;
    if (!same_key(session->key, hello.key())) {
        refuse_stream(rejected(StatusCode::PERMISSION_DENIED, "hello.key", "is not the one that opened this session"));
        return;
    }
    if (hello.sender().client() != expected.client() || hello.sender().instance() != expected.instance()) {
        refuse_stream(rejected(StatusCode::PERMISSION_DENIED, "hello.sender", "is not the predecessor named at open",
            expected.client() ? "the client" : "instance " + expected.instance()));
        return;
    }
    stream->session = request.session();
    stream->epoch   = request.epoch();
    Streams & streams = streams_[request.session()];
    if (streams.upstream) {
        streams.upstream->gate.end({StatusCode::ABORTED, "displaced by a newer stream of this session"});
        if (streams.upstream->half_closed && streams.next) {
            streams.next->cancel();  // it takes no more frames
            streams.next.reset();
        }
    }
    streams.upstream = stream;  // the stream to the next stage goes on
    if (!rules_.is_tail && !session->kept.empty()) {
        ensure_next(*session, 0);  // what may not have arrived goes again
    }
}

void Stage::reads_done(const std::shared_ptr<ExecuteStream> & stream) {
    if (stream->cancelled || stream->gate.ended()) {
        return;
    }
    stream->half_closed = true;
    if (!stream->has_more()) {
        half_close(stream);
    }
}

void Stage::half_close(const std::shared_ptr<ExecuteStream> & stream) {
    const auto found = streams_.find(stream->session);
    if (found != streams_.end() && found->second.upstream == stream && found->second.next) {
        found->second.next->finish_writes();  // its end is ours
        return;
    }
    if (found != streams_.end() && found->second.upstream == stream && found->second.results) {
        found->second.results->gate.end(grpc::Status::OK);  // nothing more will come of these frames
        found->second.results.reset();
    }
    stream->gate.end(grpc::Status::OK);
}

void Stage::stream_gone(const std::shared_ptr<ExecuteStream> & stream) {
    const auto found = streams_.find(stream->session);
    if (found == streams_.end() || found->second.upstream != stream) {
        return;
    }
    Streams & streams = found->second;
    streams.upstream.reset();
    renew_and_watch(stream->session);
    if (streams.next) {
        streams.next->cancel();
        streams.next.reset();
    }
    Session * session = table_.find(stream->session);
    if (streams.results && session != nullptr) {
        streams.results->gate.end(failure(*session, identity_.range(), StatusCode::ABORTED,
            "frames stopped coming before frame " + std::to_string(session->next_sequence)));
        streams.results.reset();
    }
}

void Stage::attach_results(const std::shared_ptr<ResultsStream> & stream, const wire::ResultsRequest & request) {
    Session * session = table_.find(request.session());
    const auto refuse_stream = [&](const grpc::Status & status) {
        events_->stream_refused("results", {request.session(), request.epoch(), stream->peer}, status);
        stream->gate.end(status);
    };
    if (session == nullptr || session->epoch != request.epoch()) {
        refuse_stream(miss(session, session == nullptr ? "no such session here" : "another epoch is held"));
        return;
    }
    if (!same_key(session->key, request.key())) {
        refuse_stream(rejected(StatusCode::PERMISSION_DENIED, "key", "is not the one that opened this session"));
        return;
    }
    if (!rules_.is_tail || session->results_chain) {
        refuse_stream(rejected(StatusCode::FAILED_PRECONDITION, "session", "results of this session do not come from here",
            "the tail of a session opened without results_chain"));
        return;
    }
    const bool kept = request.from_sequence() >= session->next_sequence || session->find_kept(request.from_sequence()) != nullptr;
    if (!kept) {
        refuse_stream({StatusCode::OUT_OF_RANGE, "results from " + std::to_string(request.from_sequence()) + " on are no longer kept"});
        return;
    }
    Streams & streams = streams_[request.session()];
    if (streams.results) {
        streams.results->gate.end({StatusCode::ABORTED, "displaced by a newer Results of this session"});
    }
    renew(session->id);
    stream->from_sequence = request.from_sequence();
    streams.results = stream;
    wire::ResultsResponse ready;
    ready.set_session(session->id);
    ready.set_epoch(session->epoch);
    ready.mutable_ready();
    stream->gate.send(std::move(ready));
    for (const KeptAnswer & answer : session->kept) {
        deliver(answer.result, *session);
    }
}

void Stage::results_gone(const std::shared_ptr<ResultsStream> & stream) {
    for (auto & [id, streams] : streams_) {
        if (streams.results == stream) {
            streams.results.reset();
            renew_and_watch(id);
        }
    }
}

}  // namespace dgr

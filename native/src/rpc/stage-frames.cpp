// The way of a frame through a stage: check, compute, pass on, answer.

#include "rpc/stage.h"

#include "rpc/status.h"
#include "rpc/timing.h"
#include "session/crc32c.h"

namespace dgr {

using grpc::StatusCode;
using std::chrono::steady_clock;

void Stage::frame(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival) {
    const wire::ExecuteRequest & request = *arrival.request;
    const uint64_t sequence = request.frame().sequence();
    counters_.bytes_in += request.ByteSizeLong();
    Session * session = table_.find(stream->session);
    const auto streams = streams_.find(stream->session);
    if (session == nullptr || session->epoch != stream->epoch || streams == streams_.end() || streams->second.upstream != stream) {
        stream->gate.end(miss(session, "the session is no longer at this epoch"));
        return;
    }
    if (request.session() != stream->session || request.epoch() != stream->epoch) {
        refuse(*stream, sequence, Refusal::epoch, rejected(StatusCode::INVALID_ARGUMENT, "epoch",
            "session or epoch is not that of the hello", stream->session + " at epoch " + std::to_string(stream->epoch)));
        return;
    }
    if (ending_) {
        refuse(*stream, sequence, Refusal::draining, failure(*session, identity_.range(), StatusCode::UNAVAILABLE, "draining"));
        return;
    }
    const Passage passage{*session, request.frame(), arrival.at};
    const FrameOutcome outcome = check_frame(request.frame(), *session, rules_);
    switch (outcome.verdict) {
        case FrameVerdict::run:
            if (mode_ == Mode::throughput) {
                queue(stream, arrival);
            } else {
                run(passage);
            }
            break;
        case FrameVerdict::repeat:
            answer(*session->find_kept(sequence), passage);
            break;
        case FrameVerdict::rejected:
            refuse(*stream, sequence, Refusal::field, rejected(StatusCode::INVALID_ARGUMENT, outcome.field, outcome.reason, outcome.legal));
            break;
        case FrameVerdict::miss:
            refuse(*stream, sequence, Refusal::cache_miss, miss(session, outcome.reason));
            break;
        case FrameVerdict::released:
            if (!rules_.is_tail && !rules_.is_head) {
                count_refused(*stream, sequence, Refusal::released, {StatusCode::OUT_OF_RANGE, outcome.reason});
                executed(*stream, session->next_sequence - 1);  // the next stage has it; the predecessor had not heard
                break;
            }
            refuse(*stream, sequence, Refusal::released, {StatusCode::OUT_OF_RANGE, outcome.reason});
            break;
        case FrameVerdict::conflict:
            count_refused(*stream, sequence, Refusal::conflict, {StatusCode::ABORTED, outcome.reason});
            drop(session->id, failure(*session, identity_.range(), StatusCode::ABORTED, outcome.reason));
            break;
    }
}

void Stage::count_refused(const ExecuteStream & stream, uint64_t sequence, Refusal why, const grpc::Status & status) {
    counters_.refuse(why);
    events_->frame_refused({stream.session, stream.epoch, stream.peer}, sequence, why, status);
}

void Stage::refuse(ExecuteStream & stream, uint64_t sequence, Refusal why, const grpc::Status & status) {
    count_refused(stream, sequence, why, status);
    stream.gate.end(status);
}

void Stage::run(const Passage & passage) {
    std::vector<Ready> ready;
    ready.push_back({passage, {}, {}});
    if (make_ready(ready.front())) {
        run_ready(ready);
    }
}

static std::shared_ptr<const wire::Frame> make_forward(const wire::Frame & frame, const EngineOutput & output, uint32_t width) {
    auto forward = std::make_shared<wire::Frame>();
    forward->set_sequence(frame.sequence());
    forward->set_first_position(frame.first_position());
    *forward->mutable_token_ids() = frame.token_ids();
    forward->set_prefix_hash_before(frame.prefix_hash_before());
    forward->set_prefix_hash_after(frame.prefix_hash_after());
    forward->set_want_token(frame.want_token());
    forward->set_want_logits(frame.want_logits());
    wire::Boundary & boundary = *forward->mutable_boundary();
    boundary.set_dtype(wire::DTYPE_F32);
    boundary.set_rows(output.boundary_rows);
    boundary.set_width(width);
    const size_t bytes = static_cast<size_t>(output.boundary_rows) * width * sizeof(float);
    boundary.set_data(output.boundary, bytes);
    boundary.set_checksum(crc32c(output.boundary, bytes));
    return forward;
}

static std::shared_ptr<const wire::Result> make_result(
    const wire::Frame & frame, const EngineOutput & output, uint32_t n_vocab, uint64_t compute_us) {
    auto result = std::make_shared<wire::Result>();
    result->set_sequence(frame.sequence());
    result->set_first_position(frame.first_position());
    result->set_rows(static_cast<uint32_t>(frame.token_ids_size()));
    result->set_prefix_hash_after(frame.prefix_hash_after());
    result->set_has_token(frame.want_token());
    if (frame.want_token()) {
        result->set_token(output.token);
    }
    if (output.logits_rows > 0) {
        result->set_n_vocab(n_vocab);
        result->set_logits_rows(output.logits_rows);
        result->set_logits(output.logits.data(), output.logits.size() * sizeof(float));
    }
    result->set_compute_us(compute_us);
    return result;
}

void Stage::advance(const Passage & passage, const EngineOutput & output, uint64_t compute_us) {
    Session & session = passage.session;
    const wire::Frame & frame = passage.frame;
    const auto rows = static_cast<uint32_t>(frame.token_ids_size());

    KeptAnswer kept;
    kept.sequence    = frame.sequence();
    kept.hash_before = session.prefix;
    kept.hash_after  = prefix_next(session.prefix, frame.token_ids().data(), rows);
    kept.checksum    = frame.has_boundary() ? frame.boundary().checksum() : 0;
    if (rules_.is_tail) {
        kept.result = make_result(frame, output, rules_.n_vocab, compute_us);
    } else {
        kept.forward = make_forward(frame, output, rules_.width);
    }
    session.prefix = kept.hash_after;
    session.next_sequence += 1;
    session.next_position += rows;
    session.kept.push_back(kept);
    session.bound_kept(MAX_KEPT_BYTES);
    ++executed_frames_;
    executed_rows_ += rows;
    answer(kept, passage);
}

void Stage::answer(const KeptAnswer & kept, const Passage & passage) {
    Session & session = passage.session;
    const std::shared_ptr<ExecuteStream> upstream = streams_[session.id].upstream;
    if (is_late(passage.frame, passage.arrived)) {
        drop(session.id, failure(session, identity_.range(), StatusCode::DEADLINE_EXCEEDED, "the frame's time ran out"));
        return;
    }
    if (kept.result) {
        deliver(kept.result, session);
    } else {
        forward(kept, passage);
    }
    executed(*upstream, kept.sequence);
}

void Stage::executed(ExecuteStream & stream, uint64_t sequence) {
    wire::ExecuteResponse response;
    response.set_session(stream.session);
    response.set_epoch(stream.epoch);
    response.mutable_executed()->set_sequence(sequence);
    stream.last_told = std::chrono::steady_clock::now();
    stream.gate.send(std::move(response));
}

void Stage::forward(const KeptAnswer & kept, const Passage & passage) {
    uint32_t remaining_ms = 0;
    if (passage.frame.remaining_ms() != 0) {
        const uint64_t spent = us_between(passage.arrived, steady_clock::now()) / 1000;
        remaining_ms = spent < passage.frame.remaining_ms() ? static_cast<uint32_t>(passage.frame.remaining_ms() - spent) : 1;
    }
    if (!ensure_next(passage.session, remaining_ms)) {
        send_kept(kept, passage.session, remaining_ms);
    }
}

void Stage::send_kept(const KeptAnswer & kept, const Session & session, uint32_t remaining_ms) {
    wire::ExecuteRequest request;
    request.set_session(session.id);
    request.set_epoch(session.epoch);
    *request.mutable_frame() = *kept.forward;
    request.mutable_frame()->set_remaining_ms(remaining_ms);
    counters_.bytes_out += request.ByteSizeLong();
    streams_[session.id].next->send(std::move(request));
}

void Stage::deliver(const std::shared_ptr<const wire::Result> & result, Session & session) {
    const Streams & streams = streams_[session.id];
    if (session.results_chain) {
        wire::ExecuteResponse response;
        response.set_session(session.id);
        response.set_epoch(session.epoch);
        *response.mutable_result() = *result;
        if (streams.upstream) {
            counters_.bytes_out += response.ByteSizeLong();
            streams.upstream->gate.send(std::move(response));
        }
    } else if (streams.results && result->sequence() >= streams.results->from_sequence) {
        wire::ResultsResponse response;
        response.set_session(session.id);
        response.set_epoch(session.epoch);
        *response.mutable_result() = *result;
        counters_.bytes_out += response.ByteSizeLong();
        streams.results->gate.send(std::move(response));
    }
}

// True when it made the stream to the next stage; all that is kept was then sent on it.
bool Stage::ensure_next(Session & session, uint32_t remaining_ms) {
    Streams & streams = streams_[session.id];
    if (streams.next) {
        return false;
    }
    wire::ExecuteRequest request;
    request.set_session(session.id);
    request.set_epoch(session.epoch);
    request.mutable_hello()->mutable_sender()->set_instance(identity_.instance());
    request.mutable_hello()->set_key(session.key);

    // Events of a stream that was given up must not touch the one that came after it.
    auto mine = std::make_shared<std::weak_ptr<NextStage>>();
    const std::weak_ptr<Stage> weak = weak_from_this();
    auto current = [id = session.id, mine](Stage & stage) {
        const auto found = stage.streams_.find(id);
        return found != stage.streams_.end() && found->second.next && found->second.next == mine->lock();
    };
    NextStage::Events events;
    events.response = [weak, current, id = session.id, epoch = session.epoch](wire::ExecuteResponse response) {
        if (const auto stage = weak.lock()) {
            stage->post([raw = stage.get(), current, id, epoch, response = std::move(response)] {
                if (current(*raw)) {
                    raw->next_response(id, epoch, response);
                }
            });
        }
    };
    events.closed = [weak, current, id = session.id, epoch = session.epoch](const grpc::Status & status) {
        if (const auto stage = weak.lock()) {
            stage->post([raw = stage.get(), current, id, epoch, status] {
                if (current(*raw)) {
                    raw->next_closed(id, epoch, status);
                }
            });
        }
    };
    streams.next = NextStage::start(connect_next(session.successor_address), std::move(request), std::move(events));
    *mine = streams.next;
    events_->next_connected(session, streams.had_next);
    streams.had_next = true;
    for (const KeptAnswer & kept : session.kept) {
        send_kept(kept, session, remaining_ms);
    }
    return true;
}

void Stage::next_response(const std::string & id, uint64_t epoch, const wire::ExecuteResponse & response) {
    Session * session = table_.find(id);
    if (session == nullptr || session->epoch != epoch) {
        return;
    }
    renew(id);
    if (response.has_executed()) {
        const bool repeated = session->kept.empty() || response.executed().sequence() < session->kept.front().sequence;
        session->release(response.executed().sequence());
        if (repeated) {
            pass_on_sign_of_life(*session);
        }
        resume(id);
    } else if (response.has_result()) {
        deliver(std::make_shared<wire::Result>(response.result()), *session);
    }
}

void Stage::next_closed(const std::string & id, uint64_t epoch, const grpc::Status & status) {
    Session * session = table_.find(id);
    if (session == nullptr || session->epoch != epoch) {
        return;
    }
    Streams & streams = streams_[id];
    if (status.ok() && streams.upstream && streams.upstream->half_closed) {
        streams.next.reset();
        streams.upstream->gate.end(grpc::Status::OK);
        return;
    }
    streams.next.reset();
    ++failed_frames_;
    events_->next_lost(*session, status);
    if (!status.ok() && !status.error_details().empty()) {
        drop(id, status);  // authored further down; passed on unchanged
        return;
    }
    const std::string cause = status.ok() ? "ended its stream" : status.error_message();
    const bool lost = status.ok() || status.error_code() == StatusCode::CANCELLED || status.error_code() == StatusCode::UNKNOWN
        || status.error_code() == StatusCode::INTERNAL;
    drop(id, failure(*session, session->successor.range(), lost ? StatusCode::UNAVAILABLE : status.error_code(),
        session->successor_address + ": " + cause));
}

}  // namespace dgr

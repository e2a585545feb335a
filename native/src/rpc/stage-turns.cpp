// Frames and the engine: what becomes of one, and in throughput mode whose turn it is and who joins in.

#include "rpc/stage.h"

#include "rpc/status.h"
#include "rpc/timing.h"
#include "session/joining.h"

#include <cstring>

namespace dgr {

using grpc::StatusCode;
using std::chrono::steady_clock;

void Stage::queue(const std::shared_ptr<ExecuteStream> & stream, const Arrival & arrival) {
    stream->queued = true;
    turns_.push_back({stream, arrival});
    post_turn();
}

// Behind all that has arrived: it is looked at before the engine runs, and can join.
void Stage::post_turn() {
    if (!turns_.empty() && !turn_comes_) {
        turn_comes_ = true;
        post([this] { run_queued(); });
    }
}

// Null when the session has gone on to another epoch or stream since.
Session * Stage::session_of(const Turn & turn) {
    Session * session = table_.find(turn.stream->session);
    const auto streams = streams_.find(turn.stream->session);
    const bool current = session != nullptr && session->epoch == turn.stream->epoch && streams != streams_.end()
        && streams->second.upstream == turn.stream;
    return current ? session : nullptr;
}

// Whose turn it is, in slot order.
std::vector<Stage::Turn> Stage::take_turns() {
    std::deque<Turn> valid;
    std::vector<WaitingFrame> waiting;
    for (Turn & turn : turns_) {
        if (const Session * session = session_of(turn)) {
            waiting.push_back({session->slot, static_cast<uint32_t>(turn.arrival.request->frame().token_ids_size())});
            valid.push_back(std::move(turn));
        }
    }
    turns_.clear();
    if (waiting.empty()) {
        return {};
    }
    std::vector<Turn> taken;
    for (const size_t i : choose_joined(waiting, engine_->describe().slot_classes, rules_.max_rows)) {
        taken.push_back(std::move(valid[i]));
    }
    for (Turn & turn : valid) {
        if (turn.stream) {
            turns_.push_back(std::move(turn));
        }
    }
    return taken;
}

void Stage::run_queued() {
    turn_comes_ = false;
    const std::vector<Turn> taken = take_turns();
    std::vector<Ready> ready;
    ready.reserve(taken.size());
    for (const Turn & turn : taken) {
        turn.stream->queued = false;
        ready.push_back({{*session_of(turn), turn.arrival.request->frame(), turn.arrival.at}, {}, {}});
        if (!make_ready(ready.back())) {
            ready.pop_back();
        }
    }
    run_ready(ready);
    for (const Turn & turn : taken) {
        renew(turn.stream->session);  // the call may have taken long
        resume(turn.stream->session);
    }
    post_turn();
}

// False when the frame cannot be run; its stream or session was then told so.
bool Stage::make_ready(Ready & ready) {
    Session & session = ready.passage.session;
    const wire::Frame & frame = ready.passage.frame;
    if (is_late(frame, ready.passage.arrived)) {
        drop(session.id, failure(session, identity_.range(), StatusCode::DEADLINE_EXCEEDED, "the frame's time ran out before it was computed"));
        return false;
    }
    EngineFrame & in  = ready.frame;
    in.slot           = session.slot;
    in.first_position = frame.first_position();
    in.n_rows         = static_cast<uint32_t>(frame.token_ids_size());
    in.token_ids      = frame.token_ids().data();
    if (!rules_.is_head) {
        const std::string & data = frame.boundary().data();
        ready.boundary.resize(data.size() / sizeof(float));
        std::memcpy(ready.boundary.data(), data.data(), data.size());
        in.boundary = ready.boundary.data();
    }
    if (rules_.is_tail) {
        in.want_token  = frame.want_token();
        in.want_logits = static_cast<LogitsWanted>(frame.want_logits());
    }
    try {
        engine_->check(in);
        return true;
    } catch (const InvalidFrame & error) {
        // Of the boundary nothing else is left to find fault with: check_frame has seen it.
        const Refusal why = error.field == "boundary" ? Refusal::not_finite : Refusal::field;
        refuse(*streams_[session.id].upstream, frame.sequence(), why,
            rejected(StatusCode::INVALID_ARGUMENT, "frame." + error.field, error.what()));
    } catch (const std::exception & error) {
        ++failed_frames_;
        drop(session.id, failure(session, identity_.range(), StatusCode::INTERNAL, error.what()));
    }
    return false;
}

void Stage::run_ready(std::vector<Ready> & ready) {
    // A frame that could not be run may have left a gap: those on its two sides go one after the other.
    auto begin = ready.begin();
    while (begin != ready.end()) {
        auto end = begin + 1;
        while (end != ready.end() && end->frame.slot == (end - 1)->frame.slot + 1) {
            ++end;
        }
        run_call(begin, end);
        begin = end;
    }
}

void Stage::run_call(std::vector<Ready>::iterator begin, std::vector<Ready>::iterator end) {
    std::vector<EngineFrame> frames;
    for (auto one = begin; one != end; ++one) {
        frames.push_back(one->frame);
    }
    std::vector<EngineOutput> outputs(frames.size());
    const Instant started = steady_clock::now();
    try {
        engine_->execute_joined(frames.data(), outputs.data(), frames.size());
    } catch (const std::exception & error) {
        const auto * failed = dynamic_cast<const EngineFailure *>(&error);
        for (auto one = begin; one != end; ++one) {
            ++failed_frames_;
            const Session & session = one->passage.session;
            if (failed != nullptr && !failed->not_finite.empty()) {
                events_->not_finite(session, one->passage.frame.sequence(), failed->not_finite);
            }
            drop(session.id, failure(session, identity_.range(), StatusCode::INTERNAL, error.what()));
        }
        return;
    }
    const uint64_t compute_us = us_between(started, steady_clock::now());
    const Kind kind = kind_of(begin->frame.n_rows);  // of all of them: joined frames have equal rows
    counters_.compute_of(kind).add(compute_us);
    for (auto one = begin; one != end; ++one) {
        counters_.wait_of(kind).add(us_between(one->passage.arrived, started));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        advance(begin[static_cast<std::ptrdiff_t>(i)].passage, outputs[i], compute_us);
    }
}

}  // namespace dgr

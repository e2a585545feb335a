// Sessions whose client is silent give their slot back. The rule stands in shard.proto, at Limits.lease_ms.
//
// A stage that waits for the next one repeats its last Executed every lease time, and passes on such a repeat: so
// even the head hears of a tail that computes for long.

#include "rpc/stage.h"

#include <algorithm>
#include <vector>

namespace dgr {

using std::chrono::steady_clock;

void Stage::renew(const std::string & id) {
    Session * session = table_.find(id);
    if (session != nullptr) {
        session->last_sign = steady_clock::now();
    }
}

void Stage::renew_and_watch(const std::string & id) {
    renew(id);
    thread_.ring_at(steady_clock::now() + limits_.lease);
}

Instant Stage::lease_end(const Session & session) const {
    const auto found = streams_.find(session.id);
    if (found == streams_.end()) {
        return session.last_sign + limits_.lease;
    }
    const Streams & streams = found->second;
    const bool frames_open = streams.upstream && !streams.upstream->gate.ended();
    const bool results_open = streams.results && !streams.results->gate.ended();
    if (frames_open && (!rules_.is_head || is_owed(session) || streams.upstream->queued)) {
        return Instant::max();  // the stage before or after would be missed if it were gone; or it is our turn
    }
    return session.last_sign + limits_.lease * (frames_open || results_open ? LEASES_WHILE_OPEN : 1);
}

// The next stage has not answered all frames.
bool Stage::is_owed(const Session & session) const {
    const auto found = streams_.find(session.id);
    return found != streams_.end() && found->second.next && !session.kept.empty();
}

// Those before us hear of it too, but not more often than it is due, whatever the next stage says.
void Stage::pass_on_sign_of_life(const Session & session) {
    const auto found = streams_.find(session.id);
    if (session.next_sequence == 0 || found == streams_.end() || !found->second.upstream) {
        return;
    }
    ExecuteStream & upstream = *found->second.upstream;
    if (steady_clock::now() - upstream.last_told >= limits_.lease / 2) {
        executed(upstream, session.next_sequence - 1);
    }
}

// Everything that had come in by `now` was dealt with before this runs, however long the engine computed.
void Stage::expire_leases(Instant now) {
    std::vector<std::string> silent;
    Instant next = now + limits_.lease;  // a lease can become shorter when a stream ends
    for (const auto & [id, session] : table_.all()) {
        const Instant end = lease_end(session);
        if (end == Instant::max() && is_owed(session)) {
            executed(*streams_[id].upstream, session.next_sequence - 1);  // said before; now a sign of life
        }
        if (end <= now) {
            silent.push_back(id);
        } else {
            next = std::min(next, end);
        }
    }
    for (const std::string & id : silent) {
        drop(id, failure(*table_.find(id), identity_.range(), grpc::StatusCode::ABORTED, "lease expired"));
    }
    if (table_.size() > 0) {
        thread_.ring_at(next);
    }
}

}  // namespace dgr

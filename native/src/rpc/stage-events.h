// What a stage says in the log. Frames that are refused are told by their field, never by its value: that can be a
// token id. Refusals are told a few times a second at most.

#pragma once

#include "dgr/shard/v1/shard.pb.h"
#include "log/event-log.h"
#include "log/line-limit.h"
#include "rpc/refusal.h"
#include "session/session.h"

#include <grpcpp/grpcpp.h>

#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// Where something happened, as far as it is known.
struct Place {
    std::string session;
    uint64_t    epoch = 0;
    std::string peer;  // as gRPC writes it: ipv4:127.0.0.1:4711
};

class StageEvents {
public:
    explicit StageEvents(const wire::LayerRange & range) : range_(range) {}

    // An open that was taken or refused.
    void open_answered(const wire::OpenSessionRequest & request, const grpc::Status & status, const std::string & peer);

    // Closed by the client, replaced, expired or failed.
    void session_ended(const Session & session, const grpc::Status & status) const;

    void frame_refused(const Place & place, uint64_t sequence, Refusal why, const grpc::Status & status);

    // A stream of frames or of results that does not begin.
    void stream_refused(const char * stream, const Place & place, const grpc::Status & status);

    void next_connected(const Session & session, bool again) const;
    void next_lost(const Session & session, const grpc::Status & status) const;

    // `values` names them: "outgoing boundary".
    void not_finite(const Session & session, uint64_t sequence, const std::string & values) const;

private:
    Fields here(const Place & place) const;
    void   refused(const char * event, Fields fields);

    const wire::LayerRange range_;
    LineLimit              refusals_{20, std::chrono::milliseconds(200)};
};

}  // namespace dgr

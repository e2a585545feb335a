#include "rpc/stage-events.h"

#include <array>

namespace dgr {

static const char * code_name(grpc::StatusCode code) {
    static constexpr std::array<const char *, 17> NAMES = {
        "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
        "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};
    const auto index = static_cast<size_t>(code);
    return index < NAMES.size() ? NAMES[index] : "UNKNOWN";
}

template <class Detail>
static bool detail_of(const grpc::Status & status, Detail & detail) {
    wire::RpcStatus outer;
    return outer.ParseFromString(status.error_details()) && outer.details_size() == 1 && outer.details(0).UnpackTo(&detail);
}

enum class Told {
    all,
    no_values,  // of a frame that was rejected only the field and what is legal: the reason can hold a token id
};

static void append_cause(Fields & fields, const grpc::Status & status, Told told) {
    fields.push_back({"status", code_name(status.error_code())});
    wire::Rejected rejected;
    wire::Failure failure;
    if (told == Told::no_values && detail_of(status, rejected)) {
        fields.push_back({"field", rejected.field()});
        if (!rejected.legal().empty()) {
            fields.push_back({"legal", rejected.legal()});
        }
    } else if (detail_of(status, failure)) {
        fields.push_back({"cause", failure.cause()});
        fields.push_back({"failed_first", failure.range().first()});
        fields.push_back({"failed_last", failure.range().last()});
    } else if (!status.error_message().empty()) {
        fields.push_back({"cause", status.error_message()});
    }
}

static Place place_of(const Session & session) {
    return {session.id, session.epoch, ""};
}

Fields StageEvents::here(const Place & place) const {
    Fields fields = {{"first", range_.first()}, {"last", range_.last()}};
    if (!place.session.empty()) {
        fields.push_back({"session", place.session});
        fields.push_back({"epoch", place.epoch});
    }
    if (!place.peer.empty()) {
        fields.push_back({"peer", place.peer});
    }
    return fields;
}

void StageEvents::refused(const char * event, Fields fields) {
    const auto held_back = refusals_.take(std::chrono::steady_clock::now());
    if (!held_back) {
        return;
    }
    if (*held_back > 0) {
        fields.push_back({"held_back", *held_back});
    }
    log_event(LogLevel::warning, event, fields);
}

void StageEvents::open_answered(const wire::OpenSessionRequest & request, const grpc::Status & status, const std::string & peer) {
    Fields fields = here({request.session(), request.epoch(), peer});
    if (!status.ok()) {
        append_cause(fields, status, Told::all);
        refused("session_refused", std::move(fields));
        return;
    }
    fields.push_back({"n_ctx", request.cache().n_ctx()});
    if (request.has_successor()) {
        fields.push_back({"next", request.successor_address()});
    }
    log_event(LogLevel::info, "session_opened", fields);
}

void StageEvents::session_ended(const Session & session, const grpc::Status & status) const {
    wire::Failure failure;
    const bool is_failure = !status.error_details().empty();
    const std::string cause = detail_of(status, failure) ? failure.cause() : status.error_message();
    const bool is_ours = failure.range().first() == range_.first() && failure.range().last() == range_.last();
    Fields fields = here(place_of(session));
    fields.push_back({"sequence", session.next_sequence});
    fields.push_back({"position", session.next_position});
    if (!is_failure || (is_ours && cause == "draining")) {
        fields.push_back({"cause", cause});
        log_event(LogLevel::info, "session_closed", fields);
        return;
    }
    append_cause(fields, status, Told::no_values);
    log_event(LogLevel::warning, is_ours && cause == "lease expired" ? "session_expired" : "session_failed", fields);
}

void StageEvents::frame_refused(const Place & place, uint64_t sequence, Refusal why, const grpc::Status & status) {
    Fields fields = here(place);
    fields.push_back({"sequence", sequence});
    fields.push_back({"reason", name_of(why)});
    append_cause(fields, status, Told::no_values);
    refused("frame_refused", std::move(fields));
}

void StageEvents::stream_refused(const char * stream, const Place & place, const grpc::Status & status) {
    Fields fields = here(place);
    fields.push_back({"stream", stream});
    append_cause(fields, status, Told::all);
    refused("stream_refused", std::move(fields));
}

void StageEvents::next_connected(const Session & session, bool again) const {
    Fields fields = here(place_of(session));
    fields.push_back({"sequence", session.next_sequence});
    fields.push_back({"next", session.successor_address});
    log_event(again ? LogLevel::info : LogLevel::debug, again ? "next_stage_reconnected" : "next_stage_connected", fields);
}

void StageEvents::next_lost(const Session & session, const grpc::Status & status) const {
    Fields fields = here(place_of(session));
    fields.push_back({"sequence", session.next_sequence});
    fields.push_back({"next", session.successor_address});
    append_cause(fields, status, Told::no_values);
    log_event(LogLevel::warning, "next_stage_lost", fields);
}

void StageEvents::not_finite(const Session & session, uint64_t sequence, const std::string & values) const {
    Fields fields = here(place_of(session));
    fields.push_back({"sequence", sequence});
    fields.push_back({"values", values});
    log_event(LogLevel::error, "not_finite", fields);
}

}  // namespace dgr

#include "session/frame-check.h"

#include "session/crc32c.h"

namespace dgr {

static FrameOutcome rejected(std::string field, std::string reason, std::string legal) {
    return {FrameVerdict::rejected, "frame." + std::move(field), std::move(reason), std::move(legal)};
}

static bool equals(const std::string & bytes, const Digest & digest) {
    return bytes == as_bytes(digest);
}

static FrameOutcome check_tokens(const wire::Frame & frame, const FrameRules & rules) {
    const int rows = frame.token_ids_size();
    if (rows < 1 || static_cast<uint32_t>(rows) > rules.max_rows) {
        return rejected("token_ids", "the frame has " + std::to_string(rows) + " token ids",
            "1 to " + std::to_string(rules.max_rows));
    }
    for (int i = 0; i < rows; ++i) {
        const int32_t id = frame.token_ids(i);
        if (id < 0 || static_cast<uint32_t>(id) >= rules.n_vocab) {
            return rejected("token_ids", "row " + std::to_string(i) + " has the id " + std::to_string(id),
                "0 to " + std::to_string(rules.n_vocab - 1));
        }
    }
    if (wire::Logits_IsValid(frame.want_logits()) == false) {
        return rejected("want_logits", "unknown value " + std::to_string(frame.want_logits()), "0, 1 or 2");
    }
    return {};
}

static FrameOutcome check_boundary(const wire::Frame & frame, const FrameRules & rules) {
    if (rules.is_head) {
        return frame.has_boundary() ? rejected("boundary", "the head takes no boundary", "absent") : FrameOutcome{};
    }
    if (!frame.has_boundary()) {
        return rejected("boundary", "missing on a stage that is not the head", "the predecessor's boundary");
    }
    const wire::Boundary & boundary = frame.boundary();
    const auto rows = static_cast<uint32_t>(frame.token_ids_size());
    if (boundary.dtype() != wire::DTYPE_F32) {
        return rejected("boundary.dtype", "is " + std::to_string(boundary.dtype()), "DTYPE_F32");
    }
    if (boundary.rows() != rows) {
        return rejected("boundary.rows", "is " + std::to_string(boundary.rows()), std::to_string(rows) + ", one a token id");
    }
    if (boundary.width() != rules.width) {
        return rejected("boundary.width", "is " + std::to_string(boundary.width()), std::to_string(rules.width));
    }
    const uint64_t bytes = static_cast<uint64_t>(rows) * rules.width * sizeof(float);
    if (boundary.data().size() != bytes) {
        return rejected("boundary.data", "has " + std::to_string(boundary.data().size()) + " bytes", std::to_string(bytes));
    }
    if (crc32c(boundary.data().data(), boundary.data().size()) != boundary.checksum()) {
        return rejected("boundary.checksum", "does not fit the data", "CRC-32C of boundary.data");
    }
    return {};
}

static FrameOutcome check_executed(const wire::Frame & frame, const Session & session) {
    const KeptAnswer * kept = session.find_kept(frame.sequence());
    if (kept == nullptr) {
        return {FrameVerdict::released, "", "the answer to frame " + std::to_string(frame.sequence()) + " is no longer kept", ""};
    }
    const uint32_t checksum = frame.has_boundary() ? frame.boundary().checksum() : 0;
    const Digest recomputed = prefix_next(kept->hash_before, frame.token_ids().data(), frame.token_ids_size());
    const bool same = equals(frame.prefix_hash_before(), kept->hash_before) && equals(frame.prefix_hash_after(), kept->hash_after)
        && recomputed == kept->hash_after && checksum == kept->checksum;
    if (!same) {
        return {FrameVerdict::conflict, "", "frame " + std::to_string(frame.sequence()) + " was executed with other content", ""};
    }
    return {FrameVerdict::repeat, "", "", ""};
}

FrameOutcome check_frame(const wire::Frame & frame, const Session & session, const FrameRules & rules) {
    for (const FrameOutcome & outcome : {check_tokens(frame, rules), check_boundary(frame, rules)}) {
        if (outcome.verdict != FrameVerdict::run) {
            return outcome;
        }
    }
    if (frame.prefix_hash_before().size() != sizeof(Digest)) {
        return rejected("prefix_hash_before", "has " + std::to_string(frame.prefix_hash_before().size()) + " bytes", "32 bytes");
    }
    if (frame.prefix_hash_after().size() != sizeof(Digest)) {
        return rejected("prefix_hash_after", "has " + std::to_string(frame.prefix_hash_after().size()) + " bytes", "32 bytes");
    }
    if (frame.sequence() < session.next_sequence) {
        return check_executed(frame, session);
    }
    if (frame.sequence() > session.next_sequence) {
        return {FrameVerdict::miss, "", "frame " + std::to_string(frame.sequence()) + " is beyond the next one", ""};
    }
    if (frame.first_position() != session.next_position) {
        return {FrameVerdict::miss, "", "frame starts at position " + std::to_string(frame.first_position()), ""};
    }
    if (!equals(frame.prefix_hash_before(), session.prefix)) {
        return {FrameVerdict::miss, "", "the prefix hash before the frame is not the one held", ""};
    }
    const auto rows = static_cast<uint32_t>(frame.token_ids_size());
    if (!equals(frame.prefix_hash_after(), prefix_next(session.prefix, frame.token_ids().data(), rows))) {
        return {FrameVerdict::miss, "", "the prefix hash after the frame is not that of its token ids", ""};
    }
    if (rows > session.n_ctx - session.next_position) {
        return rejected("token_ids", std::to_string(rows) + " rows from position " + std::to_string(session.next_position)
            + " do not fit the session", std::to_string(session.n_ctx - session.next_position) + " more positions");
    }
    return {};
}

}  // namespace dgr

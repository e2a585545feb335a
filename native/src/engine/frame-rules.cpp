#include "frame-rules.h"

#include "finite.h"

namespace dgr {

void check_token_id(int32_t id, uint32_t n_vocab) {
    if (id < 0 || static_cast<uint32_t>(id) >= n_vocab) {
        throw InvalidFrame("token_ids", "token id " + std::to_string(id) + " is not within 0 to " +
                                            std::to_string(n_vocab - 1));
    }
}

void check_engine_frame(const EngineFrame & frame, const Slot & slot, const EngineDescription & description,
                        const LlamaEngineParams & params) {
    if (slot.failed) {
        throw EngineFailure("slot " + std::to_string(frame.slot) + " failed earlier; close it and start again");
    }

    const std::string rows   = std::to_string(frame.n_rows) + " rows";
    const uint32_t    n_rows = description.numerics.n_ubatch;
    if (frame.n_rows == 0 || frame.n_rows > n_rows) {
        throw InvalidFrame("rows", rows + " are not within 1 to " + std::to_string(n_rows));
    }
    if (frame.first_position != slot.position) {
        throw InvalidFrame("first_position", "position " + std::to_string(frame.first_position) +
                                                 " is not the next one, " + std::to_string(slot.position));
    }
    if (frame.n_rows > slot.n_ctx - slot.position) {
        throw InvalidFrame("rows", rows + " at position " + std::to_string(slot.position) +
                                       " pass the slot's end at " + std::to_string(slot.n_ctx));
    }

    if (frame.token_ids == nullptr) {
        throw InvalidFrame("token_ids", "every stage needs the token ids");
    }
    for (uint32_t i = 0; i < frame.n_rows; i++) {
        check_token_id(frame.token_ids[i], description.n_vocab);
    }

    if (description.is_head() != (frame.boundary == nullptr)) {
        throw InvalidFrame("boundary", description.is_head() ? "the head takes token ids only"
                                                             : "a stage past the head needs the boundary");
    }
    const size_t values = static_cast<size_t>(frame.n_rows) * description.boundary.width;
    if (params.check_finite && frame.boundary != nullptr &&
        !all_within(frame.boundary, values, params.boundary_limit)) {
        throw InvalidFrame("boundary", "the incoming boundary holds values that are not finite, or beyond 2^100");
    }

    if (!description.is_tail() && frame.want_token) {
        throw InvalidFrame("want_token", "only the tail chooses tokens");
    }
    if (!description.is_tail() && frame.want_logits != LogitsWanted::none) {
        throw InvalidFrame("want_logits", "only the tail has logits");
    }
}

void check_joined(const EngineFrame * frames, size_t n, const SlotTable & slots, uint32_t n_ubatch) {
    if (n == 0) {
        throw InvalidFrame("slot", "a call has one frame at least");
    }
    const Slot & first = slots.opened(frames[0].slot);
    for (size_t i = 1; i < n; i++) {
        if (frames[i].slot != frames[0].slot + i || slots.opened(frames[i].slot).slot_class != first.slot_class) {
            throw InvalidFrame("slot", "joined frames are of consecutive slots of one class");
        }
        if (frames[i].n_rows != frames[0].n_rows) {
            throw InvalidFrame("rows", "joined frames have equal rows");
        }
    }
    if (n * frames[0].n_rows > n_ubatch) {
        throw InvalidFrame("rows", std::to_string(n) + " frames of " + std::to_string(frames[0].n_rows) +
                                       " rows pass the " + std::to_string(n_ubatch) + " rows of a call");
    }
}

}  // namespace dgr

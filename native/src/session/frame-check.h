// Every check of a frame against its session, before any memory is taken for it or the engine sees it.

#pragma once

#include "session/session.h"

#include <string>

namespace dgr {

// What the stage is, as far as frames are concerned.
struct FrameRules {
    bool     is_head  = false;
    bool     is_tail  = false;
    uint32_t max_rows = 0;
    uint32_t n_vocab  = 0;
    uint32_t width    = 0;  // values a row of the boundary
};

enum class FrameVerdict {
    run,       // the next frame
    repeat,    // executed before, with this content: answer again
    rejected,  // a field breaks a rule; nothing is touched
    miss,      // the cache is not where the frame expects it
    released,  // executed before, and the answer is no longer kept
    conflict,  // executed before with other content: the epoch is lost
};

struct FrameOutcome {
    FrameVerdict verdict = FrameVerdict::run;
    std::string  field;   // rejected: the offending field
    std::string  reason;
    std::string  legal;   // rejected: the legal choices or the limit
};

FrameOutcome check_frame(const wire::Frame & frame, const Session & session, const FrameRules & rules);

}  // namespace dgr

// How the tail chooses a token, and the ranges of what a client may ask for.
//
// The order: penalties, top_k, top_p, min_p, temperature, draw. Candidates stand by descending logit, equal ones by
// ascending id, so that a cut between equal logits falls the same way everywhere.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace dgr {

struct Sampling {
    float    temperature        = 0;  // logits are divided by it; 0: greedy, the lowest id among the maxima
    uint32_t top_k              = 0;  // candidates kept; 0: all
    float    top_p              = 1;  // probability mass kept, at temperature 1; 1: all
    float    min_p              = 0;  // least probability kept, as a share of the largest; 0: all
    uint32_t penalty_window     = 0;  // last positions whose token ids are penalised; 0: none
    float    repetition_penalty = 1;  // divides positive logits of ids in the window, multiplies others; 1: none
    float    frequency_penalty  = 0;  // taken from the logit for each time that an id is in the window
    float    presence_penalty   = 0;  // taken once from the logit of each id in the window
    uint64_t seed               = 0;  // randomness is a function of it and of the token's absolute position

    bool penalises() const { return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0; }

    // The most likely token of the model itself: what is done where nothing else is asked for.
    bool is_plain() const { return temperature == 0 && !penalises(); }
};

constexpr uint32_t MAX_TOP_K          = 1U << 20;
constexpr uint32_t MAX_PENALTY_WINDOW = 1U << 20;

struct SamplingFault {
    const char * field;
    double       value;
    const char * legal;
};

// The first value outside its range, if any. NaN is outside every range.
inline std::optional<SamplingFault> find_fault(const Sampling & sampling) {
    struct Rule {
        const char * field;
        double       value;
        bool         holds;
        const char * legal;
    };
    const auto within = [](double value, double low, double high) { return value >= low && value <= high; };
    const Sampling &           s     = sampling;
    const std::array<Rule, 9>  rules = {{
        { "temperature", s.temperature, s.temperature == 0 || within(s.temperature, 0.001F, 100),
          "0 (greedy), or 0.001 to 100" },
        { "top_k", double(s.top_k), s.top_k <= MAX_TOP_K, "0 (all) to 1048576" },
        { "top_p", s.top_p, s.top_p > 0 && s.top_p <= 1, "above 0, up to 1 (all)" },
        { "min_p", s.min_p, within(s.min_p, 0, 1), "0 (all) to 1" },
        { "penalty_window", double(s.penalty_window), s.penalty_window <= MAX_PENALTY_WINDOW,
          "0 (no penalties) to 1048576" },
        { "repetition_penalty", s.repetition_penalty, within(s.repetition_penalty, 0.1F, 10), "0.1 to 10, 1: none" },
        { "frequency_penalty", s.frequency_penalty, within(s.frequency_penalty, -100, 100), "-100 to 100, 0: none" },
        { "presence_penalty", s.presence_penalty, within(s.presence_penalty, -100, 100), "-100 to 100, 0: none" },
        { "penalty_window", double(s.penalty_window), s.penalty_window > 0 || !s.penalises(),
          "1 to 1048576 where there is a penalty" },
    }};
    for (const Rule & rule : rules) {
        if (!rule.holds) {
            return SamplingFault{ rule.field, rule.value, rule.legal };
        }
    }
    return std::nullopt;
}

}  // namespace dgr

// Choosing tokens as a session asked for: upstream's samplers filter and give probabilities, the draw is ours.
//
// Nothing is remembered from draw to draw but the token ids that penalties look at, so a session that is prefilled
// again, or whose model is cut otherwise, chooses the same tokens from the same logits.

#pragma once

#include "candidate-order.h"
#include "dgr/sampling.h"
#include "dgr/shard-engine.h"

#include "llama-cpp.h"

#include <map>
#include <vector>

namespace dgr {

// 53 random bits as a number in [0, 1). With SplitMix64 as a function of state and count: the output number
// `position`, from 0, of the generator whose state is the first output of the generator whose state is `seed`.
double draw_at(uint64_t seed, uint64_t position);

// The first candidate at which the running sum of the probabilities passes `u` times their sum.
// Throws std::runtime_error when they are no probabilities.
size_t pick(const llama_token_data * candidates, size_t n, double u);

class Sampler {
public:
    // No more than `n_ctx` positions will be accepted.
    Sampler(const Sampling & sampling, uint32_t n_vocab, uint32_t n_ctx);

    // The ids at the next positions of the session.
    void accept(const int32_t * token_ids, uint32_t n_rows);

    // The token at `position`, from the logits [n_vocab] of the position before.
    // Throws std::runtime_error when no probabilities come of them.
    int32_t choose(const float * logits, uint64_t position);

private:
    Sampling                      sampling;
    llama_sampler_ptr             penalties;
    llama_sampler_ptr             filters;
    std::vector<llama_token_data> candidates;
    CandidateOrder                order;
};

// The samplers of the slots whose sessions asked for one; the others choose greedily.
class SlotSamplers {
public:
    // Throws InvalidFrame naming the field when a value is outside its range.
    void set(uint32_t slot, const Sampling & sampling, uint32_t n_vocab, uint32_t n_ctx);
    void forget(uint32_t slot) { samplers.erase(slot); }

    // Takes the ids of a frame that was computed; returns the token after it, -1 when none is wanted.
    // `last` are the logits [n_vocab] of its last row.
    int32_t next(const EngineFrame & frame, const float * last, uint32_t n_vocab);

private:
    std::map<uint32_t, Sampler> samplers;
};

}  // namespace dgr

#include "sampler.h"

#include "finite.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dgr {

namespace {

// Output number `count`, from 0, of a SplitMix64 generator.
uint64_t splitmix64(uint64_t state, uint64_t count) {
    uint64_t z = state + (count + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

llama_sampler_ptr made(llama_sampler * sampler) {
    if (sampler == nullptr) {
        throw std::runtime_error("upstream made no sampler");
    }
    return llama_sampler_ptr(sampler);
}

llama_sampler_ptr make_filters(const Sampling & sampling) {
    llama_sampler_ptr chain = made(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(chain.get(), made(llama_sampler_init_top_k(static_cast<int32_t>(sampling.top_k))).release());
    llama_sampler_chain_add(chain.get(), made(llama_sampler_init_top_p(sampling.top_p, 1)).release());
    llama_sampler_chain_add(chain.get(), made(llama_sampler_init_min_p(sampling.min_p, 1)).release());
    llama_sampler_chain_add(chain.get(), made(llama_sampler_init_temp(sampling.temperature)).release());
    // for the probabilities; its own choice, which depends on all draws before, is not looked at
    llama_sampler_chain_add(chain.get(), made(llama_sampler_init_dist(0)).release());
    return chain;
}

}  // namespace

double draw_at(uint64_t seed, uint64_t position) {
    return static_cast<double>(splitmix64(splitmix64(seed, 0), position) >> 11) * 0x1p-53;
}

size_t pick(const llama_token_data * candidates, size_t n, double u) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += double{ candidates[i].p };
    }
    if (!(sum > 0) || !std::isfinite(sum)) {
        throw std::runtime_error("the logits give no probabilities to choose by");
    }
    double running = 0;
    for (size_t i = 0; i < n; i++) {
        running += double{ candidates[i].p };
        if (running > u * sum) {  // happens: u * sum is less than sum, and the last sum is the same additions
            return i;
        }
    }
    return n - 1;
}

Sampler::Sampler(const Sampling & wanted, uint32_t n_vocab, uint32_t n_ctx)
    : sampling(wanted),
      // upstream takes the memory of the whole window at once; more than the session's length has no use
      penalties(made(llama_sampler_init_penalties(
          static_cast<int32_t>(n_vocab), static_cast<int32_t>(std::min(wanted.penalty_window, n_ctx)),
          wanted.repetition_penalty, wanted.frequency_penalty, wanted.presence_penalty))),
      filters(make_filters(wanted)),
      candidates(n_vocab) {}

void Sampler::accept(const int32_t * token_ids, uint32_t n_rows) {
    if (!sampling.penalises()) {
        return;
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        llama_sampler_accept(penalties.get(), token_ids[i]);
    }
}

int32_t Sampler::choose(const float * logits, uint64_t position) {
    if (!all_finite(logits, candidates.size())) {
        throw std::runtime_error("the logits hold values that are not finite");
    }
    for (size_t i = 0; i < candidates.size(); i++) {
        candidates[i] = { static_cast<llama_token>(i), logits[i], 0 };
    }
    llama_token_data_array view{ candidates.data(), candidates.size(), -1, false };
    llama_sampler_apply(penalties.get(), &view);

    if (sampling.temperature == 0) {
        return std::min_element(candidates.begin(), candidates.end(), stands_before)->id;
    }
    const size_t n_first = sampling.top_k == 0 ? view.size : std::min<size_t>(sampling.top_k, view.size);
    order.put_first(candidates, n_first);
    if (!std::isfinite(candidates.front().logit)) {
        throw std::runtime_error("a penalty took a logit beyond what a float holds");
    }
    view.size   = n_first;
    view.sorted = true;
    llama_sampler_apply(filters.get(), &view);
    return view.data[pick(view.data, view.size, draw_at(sampling.seed, position))].id;
}

void SlotSamplers::set(uint32_t slot, const Sampling & sampling, uint32_t n_vocab, uint32_t n_ctx) {
    if (const auto fault = find_fault(sampling)) {
        throw InvalidFrame(std::string("sampling.") + fault->field, std::to_string(fault->value) + " is not " + fault->legal);
    }
    forget(slot);
    if (!sampling.is_plain()) {
        samplers.try_emplace(slot, sampling, n_vocab, n_ctx);
    }
}

int32_t SlotSamplers::next(const EngineFrame & frame, const float * last, uint32_t n_vocab) {
    const auto found = samplers.find(frame.slot);
    if (found != samplers.end()) {
        found->second.accept(frame.token_ids, frame.n_rows);
    }
    if (!frame.want_token) {
        return -1;
    }
    if (found != samplers.end()) {
        return found->second.choose(last, uint64_t{ frame.first_position } + frame.n_rows);
    }
    return static_cast<int32_t>(std::max_element(last, last + n_vocab) - last);
}

}  // namespace dgr

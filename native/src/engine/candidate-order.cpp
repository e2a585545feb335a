#include "candidate-order.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace dgr {

namespace {

constexpr uint32_t SIGN = 0x80000000U;

// Floats as integers that ascend as the floats descend. Both zeros are one.
uint32_t rank_of(float logit) {
    const float value = logit + 0.0F;  // -0 + 0 = 0
    uint32_t    bits  = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & SIGN) != 0 ? bits : ~(bits | SIGN);
}

float logit_of(uint32_t rank) {
    const uint32_t bits  = (rank & SIGN) != 0 ? rank : ~rank & ~SIGN;
    float          logit = 0;
    std::memcpy(&logit, &bits, sizeof(logit));
    return logit;
}

}  // namespace

void CandidateOrder::put_first(std::vector<llama_token_data> & candidates, size_t n) {
    if (n < candidates.size() / 16) {
        std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(n), candidates.end(),
                          stands_before);
    } else if (candidates.size() < 2048) {
        std::sort(candidates.begin(), candidates.end(), stands_before);
    } else {
        put_all(candidates);
    }
}

// By digits from the lowest up; each pass keeps the order of equal digits, so equal logits stay by id. Comparing takes
// several times as long for a vocabulary of a hundred thousand.
void CandidateOrder::put_all(std::vector<llama_token_data> & candidates) {
    constexpr uint32_t DIGIT_BITS = 11;
    constexpr size_t   DIGITS     = size_t{ 1 } << DIGIT_BITS;

    keys.resize(candidates.size());
    sorted.resize(candidates.size());
    for (size_t i = 0; i < candidates.size(); i++) {
        keys[i] = { rank_of(candidates[i].logit), candidates[i].id };
    }
    for (uint32_t shift = 0; shift < 32; shift += DIGIT_BITS) {
        const auto digit = [shift](const Key & key) { return (key.rank >> shift) & (DIGITS - 1); };

        std::array<uint32_t, DIGITS> place{};
        for (const Key & key : keys) {
            place[digit(key)]++;
        }
        uint32_t before = 0;
        for (uint32_t & one : place) {
            before += one;
            one = before - one;
        }
        for (const Key & key : keys) {
            sorted[place[digit(key)]++] = key;
        }
        keys.swap(sorted);
    }
    for (size_t i = 0; i < candidates.size(); i++) {
        candidates[i] = { keys[i].id, logit_of(keys[i].rank), 0 };
    }
}

}  // namespace dgr

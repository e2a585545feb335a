// The order in which candidates stand: by descending logit, equal ones by ascending id.
//
// Upstream's own sort leaves equal logits as its library happens to; a cut between them would differ from lane to lane.

#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

namespace dgr {

inline bool stands_before(const llama_token_data & a, const llama_token_data & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Puts candidates in order. Keeps its memory from call to call.
class CandidateOrder {
public:
    // The first `n` of `candidates`, which stand by ascending id and hold no NaN; the others are left as they come.
    void put_first(std::vector<llama_token_data> & candidates, size_t n);

private:
    void put_all(std::vector<llama_token_data> & candidates);

    struct Key {
        uint32_t    rank;  // descends as the logit ascends
        llama_token id;
    };
    std::vector<Key> keys;
    std::vector<Key> sorted;
};

}  // namespace dgr

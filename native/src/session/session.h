// One conversation on this stage at one epoch.

#pragma once

#include "dgr/shard-engine.h"
#include "dgr/shard/v1/shard.pb.h"
#include "session/prefix-hash.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// What was answered to a frame, kept to answer a repeat of it.
struct KeptAnswer {
    uint64_t sequence = 0;
    Digest   hash_before{};
    Digest   hash_after{};
    uint32_t checksum = 0;  // of the boundary that came in; 0 on the head
    std::shared_ptr<const wire::Frame>  forward;  // not the tail
    std::shared_ptr<const wire::Result> result;   // the tail
};

struct Session {
    std::string id;
    std::string key;
    uint64_t    epoch = 0;
    uint32_t    slot  = 0;
    uint32_t    n_ctx = 0;  // positions it may use

    wire::Peer  predecessor;
    wire::Peer  successor;
    std::string successor_address;
    bool        results_chain = false;

    uint64_t next_sequence = 0;
    uint32_t next_position = 0;
    Digest   prefix{};

    std::chrono::steady_clock::time_point last_sign{};  // of its client; see the lease rule in shard.proto

    std::deque<KeptAnswer> kept;  // consecutive sequences, the last is next_sequence - 1

    uint64_t kept_bytes() const;

    // Forgets answers up to and including `sequence`.
    void release(uint64_t sequence);

    // Forgets the oldest answers until at most `bytes` are kept; the last one always stays.
    void bound_kept(uint64_t bytes);

    const KeptAnswer * find_kept(uint64_t sequence) const;
};

}  // namespace dgr

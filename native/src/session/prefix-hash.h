// The hash over all token ids of a session so far. At cuts past the hash-routed layers wrong ids do not show in
// the logits, so this is the only guard; every stage computes it anew. The definition and a test vector stand in
// shard.proto.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace dgr {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view data);

std::string_view as_bytes(const Digest & digest);
std::string      as_hex(const Digest & digest);

// From 64 hex digits; throws std::invalid_argument.
Digest digest_from_hex(const std::string & hex);

// H0 of a session on the artifact with this digest.
Digest prefix_start(const Digest & artifact);

// H' after a frame with these ids.
Digest prefix_next(const Digest & hash, const int32_t * ids, uint32_t rows);

}  // namespace dgr

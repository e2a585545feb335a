// How a session's tokens are chosen, between the wire and the engine.

#pragma once

#include "dgr/sampling.h"
#include "dgr/shard/v1/shard.pb.h"

#include <grpcpp/grpcpp.h>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// What is absent is filled in.
Sampling       from_wire(const wire::Sampling & sampling);
wire::Sampling to_wire(const Sampling & sampling);

// Checks what an OpenSession asks for: INVALID_ARGUMENT on a stage that is not the tail, and for a value outside its
// range.
grpc::Status check_sampling(const wire::OpenSessionRequest & request, bool is_tail);

}  // namespace dgr

// Whether this stage, its neighbours and the client's expectations fit together. Asked before a slot is taken.

#pragma once

#include "dgr/shard/v1/shard.pb.h"
#include "rpc/address.h"

#include <grpcpp/grpcpp.h>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// Checks an OpenSession against what this stage is. OK, or INVALID_ARGUMENT for a malformed field, FAILED_PRECONDITION
// for one that differs, and PERMISSION_DENIED for a next stage that is not on the list.
grpc::Status check_open(
    const wire::OpenSessionRequest & request, const wire::DescribeResponse & self, const AllowList & allowed);

// Checks what the successor says of itself against what the client said of it and against this stage.
grpc::Status check_successor(
    const wire::OpenSessionRequest & request, const wire::DescribeResponse & self, const wire::DescribeResponse & successor);

}  // namespace dgr

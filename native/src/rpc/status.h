// Statuses with typed details, so that a client need not read prose.

#pragma once

#include "dgr/shard/v1/shard.pb.h"

#include <grpcpp/grpcpp.h>

#include <string>

namespace dgr {

namespace wire = ::dgr::shard::v1;

// A request refused before anything was touched.
grpc::Status rejected(grpc::StatusCode code, const std::string & field, const std::string & reason, const std::string & legal = "");

grpc::Status with_detail(grpc::StatusCode code, const std::string & message, const google::protobuf::Message & detail);

// "[0, 14)"
std::string to_text(const wire::LayerRange & range);

}  // namespace dgr

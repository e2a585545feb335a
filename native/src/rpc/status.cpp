#include "rpc/status.h"

namespace dgr {

grpc::Status with_detail(grpc::StatusCode code, const std::string & message, const google::protobuf::Message & detail) {
    wire::RpcStatus status;
    status.set_code(code);
    status.set_message(message);
    status.add_details()->PackFrom(detail);
    return {code, message, status.SerializeAsString()};
}

grpc::Status rejected(grpc::StatusCode code, const std::string & field, const std::string & reason, const std::string & legal) {
    wire::Rejected detail;
    detail.set_field(field);
    detail.set_reason(reason);
    detail.set_legal(legal);
    return with_detail(code, field + ": " + reason + (legal.empty() ? "" : " (legal: " + legal + ")"), detail);
}

std::string to_text(const wire::LayerRange & range) {
    return "[" + std::to_string(range.first()) + ", " + std::to_string(range.last()) + ")";
}

}  // namespace dgr

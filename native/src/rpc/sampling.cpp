#include "rpc/sampling.h"

#include "rpc/status.h"

#include <sstream>

namespace dgr {

Sampling from_wire(const wire::Sampling & asked) {
    Sampling out;
    out.temperature        = asked.temperature();
    out.top_k              = asked.top_k();
    out.top_p              = asked.has_top_p() ? asked.top_p() : out.top_p;
    out.min_p              = asked.min_p();
    out.penalty_window     = asked.penalty_window();
    out.repetition_penalty = asked.has_repetition_penalty() ? asked.repetition_penalty() : out.repetition_penalty;
    out.frequency_penalty  = asked.frequency_penalty();
    out.presence_penalty   = asked.presence_penalty();
    out.seed               = asked.seed();
    return out;
}

wire::Sampling to_wire(const Sampling & sampling) {
    wire::Sampling out;
    out.set_temperature(sampling.temperature);
    out.set_top_k(sampling.top_k);
    out.set_top_p(sampling.top_p);
    out.set_min_p(sampling.min_p);
    out.set_penalty_window(sampling.penalty_window);
    out.set_repetition_penalty(sampling.repetition_penalty);
    out.set_frequency_penalty(sampling.frequency_penalty);
    out.set_presence_penalty(sampling.presence_penalty);
    out.set_seed(sampling.seed);
    return out;
}

grpc::Status check_sampling(const wire::OpenSessionRequest & request, bool is_tail) {
    if (!request.has_sampling()) {
        return grpc::Status::OK;
    }
    if (!is_tail) {
        return rejected(grpc::StatusCode::INVALID_ARGUMENT, "sampling", "this stage is not the tail, which chooses the tokens", "absent");
    }
    const auto fault = find_fault(from_wire(request.sampling()));
    if (!fault) {
        return grpc::Status::OK;
    }
    std::ostringstream value;
    value << "is " << fault->value;
    return rejected(grpc::StatusCode::INVALID_ARGUMENT, std::string("sampling.") + fault->field, value.str(), fault->legal);
}

}  // namespace dgr

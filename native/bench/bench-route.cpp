#include "bench/bench-route.h"

namespace dgr::bench {

static constexpr auto PATIENCE = std::chrono::seconds(30);

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string BenchStage::name() const {
    return "stage [" + std::to_string(about.range().first()) + ", " + std::to_string(about.range().last()) + ") at " + address;
}

wire::Peer BenchStage::peer() const {
    wire::Peer peer;
    peer.set_instance(about.instance());
    *peer.mutable_range() = about.range();
    peer.set_patched_tree(about.build().patched_tree());
    peer.set_artifact_digest(about.artifact().digest());
    peer.set_boundary_digest(about.boundary().digest());
    peer.set_n_ubatch(about.numerics().n_ubatch());
    peer.set_numerics_digest(about.numerics().digest());
    peer.set_lane_digest(about.build().lane_digest());
    return peer;
}

std::unique_ptr<wire::Shard::Stub> BenchStage::connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    return wire::Shard::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

BenchStage describe_stage(const std::string & address) {
    BenchStage stage;
    stage.address = address;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + PATIENCE);
    const grpc::Status status = stage.connect()->Describe(&context, {}, &stage.about);
    if (!status.ok()) {
        throw BenchError("the stage at " + address + " does not answer: " + status.error_message());
    }
    return stage;
}

BenchRoute::BenchRoute(const std::vector<std::string> & addresses) {
    uint32_t next = 0;
    for (const std::string & address : addresses) {
        stages.push_back(describe_stage(address));
        if (stages.back().about.range().first() != next) {
            throw BenchError(stages.back().name() + " does not begin at layer " + std::to_string(next));
        }
        next = stages.back().about.range().last();
    }
    if (stages.empty() || next != tail().about.artifact().n_layer()) {
        throw BenchError("the stages end at layer " + std::to_string(next) + ", not at the end of the model");
    }
}

std::vector<int32_t> made_tokens(uint32_t count, uint32_t n_vocab, uint32_t seed) {
    std::vector<int32_t> ids(count);
    uint32_t state = seed;
    for (int32_t & id : ids) {
        state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator
        id = static_cast<int32_t>((state >> 8) % n_vocab);
    }
    return ids;
}

}  // namespace dgr::bench

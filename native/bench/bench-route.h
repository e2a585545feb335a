// The stages of a route as a client knows them: addresses, and what each says of itself.

#pragma once

#include "dgr/shard/v1/shard.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dgr::bench {

namespace wire = ::dgr::shard::v1;

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start);

// A stage refused, failed or does not answer.
class BenchError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct BenchStage {
    std::string            address;
    wire::DescribeResponse about;

    std::string name() const;
    wire::Peer  peer() const;

    // On a connection of its own.
    std::unique_ptr<wire::Shard::Stub> connect() const;
};

class BenchRoute {
public:
    // Asks every stage who it is; they must cover the model from its first layer to its last.
    explicit BenchRoute(const std::vector<std::string> & addresses);

    const BenchStage & head() const { return stages.front(); }
    const BenchStage & tail() const { return stages.back(); }
    uint32_t n_ubatch() const { return head().about.numerics().n_ubatch(); }
    uint32_t n_vocab() const { return head().about.artifact().n_vocab(); }

    std::vector<BenchStage> stages;
};

BenchStage describe_stage(const std::string & address);

// Token ids without a pattern, the same every time.
std::vector<int32_t> made_tokens(uint32_t count, uint32_t n_vocab, uint32_t seed = 1);

}  // namespace dgr::bench

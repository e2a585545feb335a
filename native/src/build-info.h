// What this worker was built from. The values come from the lane's configure arguments.

#pragma once

#include <cstdint>
#include <string>

namespace dgr {

constexpr const char * WORKER_VERSION = "0.1.0";

struct BuildFacts {
    std::string lane;
    std::string lane_digest;
    std::string isa;
    std::string commit;
    std::string base_tree;
    std::string patched_tree;
    uint32_t    upstream_build = 0;
    std::string upstream_version;
};

const BuildFacts & build_facts();

}  // namespace dgr

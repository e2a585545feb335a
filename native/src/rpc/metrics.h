// A stage's numbers as Prometheus reads them.

#pragma once

#include "rpc/snapshot.h"

#include <string>

namespace dgr {

// `about` is what the worker answers to Describe.
std::string metrics_text(const wire::DescribeResponse & about, const StageSnapshot & now);

}  // namespace dgr

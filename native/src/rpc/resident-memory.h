// Memory that this process holds.

#pragma once

#include <cstdint>

namespace dgr {

// Bytes in RAM, mapped weights that were touched included; 0 where the system does not say.
uint64_t resident_bytes();

}  // namespace dgr

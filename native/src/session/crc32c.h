// CRC-32C (Castagnoli), the checksum of a boundary on the wire: RFC 3720, appendix B.4.

#pragma once

#include <cstddef>
#include <cstdint>

namespace dgr {

uint32_t crc32c(const void * data, size_t size);

}  // namespace dgr

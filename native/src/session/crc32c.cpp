#include "session/crc32c.h"

#include <array>

namespace dgr {

// Eight bytes a step: table k advances a byte by k further zero bytes.
static constexpr int STEP = 8;
using Tables = std::array<std::array<uint32_t, 256>, STEP>;

static Tables make_tables() {
    constexpr uint32_t POLYNOMIAL = 0x82f63b78;  // reflected
    Tables tables{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) {
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        }
        tables[0][i] = value;
    }
    for (int k = 1; k < STEP; ++k) {
        for (uint32_t i = 0; i < 256; ++i) {
            const uint32_t before = tables[k - 1][i];
            tables[k][i] = before >> 8 ^ tables[0][before & 0xff];
        }
    }
    return tables;
}

uint32_t crc32c(const void * data, size_t size) {
    static const Tables tables = make_tables();
    const auto * bytes = static_cast<const uint8_t *>(data);
    uint32_t crc = 0xffffffff;
    while (size >= STEP) {
        uint32_t next = 0;
        for (int i = 0; i < STEP; ++i) {
            const uint8_t mixed = i < 4 ? bytes[i] ^ static_cast<uint8_t>(crc >> 8 * i) : bytes[i];
            next ^= tables[STEP - 1 - i][mixed];
        }
        crc = next;
        bytes += STEP;
        size -= STEP;
    }
    while (size-- > 0) {
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes++) & 0xff];
    }
    return ~crc;
}

}  // namespace dgr

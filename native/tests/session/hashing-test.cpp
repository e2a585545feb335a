#include "session/crc32c.h"
#include "session/prefix-hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dgr {

TEST(PrefixHash, GivesTheVectorOfTheContract) {
    const Digest start = prefix_start(Digest{});
    EXPECT_EQ(as_hex(start), "7e0f5ddc958fa863722822b287fad1a06fe4b54e0668032619152550bf895fb3");
    const int32_t ids[] = {1, 2, 3};
    EXPECT_EQ(as_hex(prefix_next(start, ids, 3)), "9bd34196546daf431cef1d1587f4ae3665d7e20fd9394d9ead195d6a4e0b9d72");
}

TEST(PrefixHash, DependsOnOrderCountAndFrames) {
    const Digest start = prefix_start(Digest{});
    const int32_t forward[] = {1, 2}, backward[] = {2, 1};
    const Digest joined = prefix_next(start, forward, 2);
    EXPECT_NE(joined, prefix_next(start, backward, 2));
    EXPECT_NE(joined, prefix_next(prefix_next(start, forward, 1), forward + 1, 1));
}

TEST(PrefixHash, RefusesWhatIsNoDigest) {
    EXPECT_THROW(digest_from_hex(""), std::invalid_argument);
    EXPECT_THROW(digest_from_hex(std::string(63, 'a')), std::invalid_argument);
    EXPECT_THROW(digest_from_hex(std::string(64, 'G')), std::invalid_argument);
    EXPECT_EQ(as_hex(digest_from_hex(std::string(64, 'b'))), std::string(64, 'b'));
}

TEST(Crc32c, GivesTheVectorsOfTheStandard) {
    EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
    EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
    EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
    EXPECT_EQ(crc32c("", 0), 0u);
}

static uint32_t bit_by_bit(const uint8_t * data, size_t size) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        }
    }
    return ~crc;
}

TEST(Crc32c, EqualsTheDefinitionAtEveryLengthAndAlignment) {
    std::vector<uint8_t> bytes(80);
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<uint8_t>(i * 37 + 11);
    }
    for (size_t start = 0; start < 9; ++start) {
        for (size_t size = 0; start + size <= bytes.size(); ++size) {
            ASSERT_EQ(crc32c(bytes.data() + start, size), bit_by_bit(bytes.data() + start, size)) << start << " " << size;
        }
    }
}

}  // namespace dgr

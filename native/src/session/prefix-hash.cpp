#include "session/prefix-hash.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace dgr {

static constexpr std::string_view PREFIX_TAG = "dgr.shard.v1.prefix";

static void append_le32(std::string & out, uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
        out.push_back(static_cast<char>(value >> shift & 0xff));
    }
}

Digest sha256(std::string_view data) {
    Digest   digest{};
    unsigned size = 0;
    if (EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 || size != digest.size()) {
        throw std::runtime_error("SHA-256 is not available");
    }
    return digest;
}

std::string_view as_bytes(const Digest & digest) {
    return {reinterpret_cast<const char *>(digest.data()), digest.size()};
}

std::string as_hex(const Digest & digest) {
    static const char * digits = "0123456789abcdef";
    std::string hex;
    for (uint8_t byte : digest) {
        hex.push_back(digits[byte >> 4]);
        hex.push_back(digits[byte & 15]);
    }
    return hex;
}

Digest digest_from_hex(const std::string & hex) {
    auto nibble = [](char c) -> int {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    Digest digest{};
    bool ok = hex.size() == 2 * digest.size();
    for (size_t i = 0; ok && i < digest.size(); ++i) {
        const int high = nibble(hex[2 * i]);
        const int low  = nibble(hex[2 * i + 1]);
        ok = high >= 0 && low >= 0;
        digest[i] = static_cast<uint8_t>(high * 16 + low);
    }
    if (!ok) {
        throw std::invalid_argument("a digest is 64 lower-case hex digits, not '" + hex + "'");
    }
    return digest;
}

Digest prefix_start(const Digest & artifact) {
    return sha256(std::string(PREFIX_TAG) + std::string(as_bytes(artifact)));
}

Digest prefix_next(const Digest & hash, const int32_t * ids, uint32_t rows) {
    std::string data(as_bytes(hash));
    data.reserve(data.size() + 4 + 4 * static_cast<size_t>(rows));
    append_le32(data, rows);
    for (uint32_t i = 0; i < rows; ++i) {
        append_le32(data, static_cast<uint32_t>(ids[i]));
    }
    return sha256(data);
}

}  // namespace dgr

// The bytes of one run, taken as small choices. When they are used up, every choice is the first one.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace dgr::fuzz {

class Input {
public:
    Input(const uint8_t * data, size_t size) : data_(data), left_(size) {}

    bool empty() const { return left_ == 0; }

    uint8_t byte() {
        if (left_ == 0) {
            return 0;
        }
        --left_;
        return *data_++;
    }

    // 0 to n - 1.
    uint32_t below(uint32_t n) { return n <= 256 ? byte() % n : number32() % n; }

    bool one_in(uint32_t n) { return below(n) == n - 1; }

    uint32_t number32() { return taken<uint32_t>(); }
    uint64_t number64() { return taken<uint64_t>(); }

    std::string bytes(size_t most) {
        const size_t n = std::min(most, left_);
        std::string  out(reinterpret_cast<const char *>(data_), n);
        data_ += n;
        left_ -= n;
        return out;
    }

    std::string rest() { return bytes(left_); }

private:
    template <class Number>
    Number taken() {
        const std::string raw = bytes(sizeof(Number));
        Number value = 0;
        std::memcpy(&value, raw.data(), raw.size());
        return value;
    }

    const uint8_t * data_;
    size_t          left_;
};

}  // namespace dgr::fuzz

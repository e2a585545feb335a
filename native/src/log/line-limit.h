// Lets a few lines a second through, so that a client that is refused again and again does not fill the disk.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace dgr {

class LineLimit {
public:
    using Instant = std::chrono::steady_clock::time_point;

    // At most `burst` lines at once, and one more every `interval`.
    LineLimit(unsigned burst, std::chrono::milliseconds interval) : burst_(burst), interval_(interval) {}

    // Nothing when this line is too many, otherwise how many were held back since the last one. From any thread.
    std::optional<uint64_t> take(Instant now) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Instant earliest = now - interval_ * burst_;
        paid_until_ = std::max(paid_until_, earliest);
        if (paid_until_ + interval_ > now) {
            ++held_back_;
            return std::nullopt;
        }
        paid_until_ += interval_;
        const uint64_t held_back = held_back_;
        held_back_ = 0;
        return held_back;
    }

private:
    const int64_t                   burst_;
    const std::chrono::milliseconds interval_;
    std::mutex                      mutex_;
    Instant                         paid_until_ = Instant::min();
    uint64_t                        held_back_ = 0;
};

}  // namespace dgr

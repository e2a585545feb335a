// How long something took, counted in buckets. Written and read by any thread, without a lock.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dgr {

class Histogram {
public:
    // Upper ends of the buckets in microseconds; one more bucket takes the rest.
    static constexpr std::array<uint64_t, 16> ENDS = {
        100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 10000000, 60000000};

    // What it held at one moment. The count is that of the buckets, so that they always agree.
    struct Reading {
        std::array<uint64_t, ENDS.size() + 1> up_to{};  // each bucket with all below it; the last is the count
        uint64_t                              sum_us = 0;

        uint64_t count() const { return up_to.back(); }
    };

    void add(uint64_t us) {
        size_t bucket = 0;
        while (bucket < ENDS.size() && us > ENDS[bucket]) {
            ++bucket;
        }
        buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
        sum_us_.fetch_add(us, std::memory_order_relaxed);
    }

    Reading read() const {
        Reading reading;
        uint64_t so_far = 0;
        for (size_t i = 0; i < buckets_.size(); ++i) {
            so_far += buckets_[i].load(std::memory_order_relaxed);
            reading.up_to[i] = so_far;
        }
        reading.sum_us = sum_us_.load(std::memory_order_relaxed);
        return reading;
    }

private:
    std::array<std::atomic<uint64_t>, ENDS.size() + 1> buckets_{};
    std::atomic<uint64_t>                              sum_us_{0};
};

}  // namespace dgr

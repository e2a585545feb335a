// The one thread that owns the engine and the sessions. RPC threads post to it and never wait for it.

#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace dgr {

class EngineThread {
public:
    EngineThread();
    ~EngineThread() { stop(); }

    EngineThread(const EngineThread &) = delete;
    EngineThread & operator=(const EngineThread &) = delete;

    // Tasks run one at a time in the order they are posted, and must not throw.
    // After stop() they are dropped.
    void post(std::function<void()> task);

    using Instant = std::chrono::steady_clock::time_point;

    // What an alarm runs: as a task behind all that had been posted when it rang, with the moment at which it rang.
    // Set once, before anything is posted.
    void on_alarm(std::function<void(Instant)> ring) { on_alarm_ = std::move(ring); }

    // Rings once at `at`, or as soon after it as no task runs; the earliest of several that are set wins.
    void ring_at(Instant at);

    // Runs what is queued, then ends the thread.
    void stop();

    size_t queued() const;

private:
    void run();
    void ring_if_due();

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    std::function<void(Instant)> on_alarm_;
    std::optional<Instant> alarm_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace dgr

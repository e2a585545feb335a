// The one thread that owns the engine and the sessions. RPC threads post to it and never wait for it.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
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

    // Runs what is queued, then ends the thread.
    void stop();

    size_t queued() const;

private:
    void run();

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace dgr

#include "rpc/engine-thread.h"

namespace dgr {

EngineThread::EngineThread() : thread_([this] { run(); }) {}

void EngineThread::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void EngineThread::post(std::function<void()> task) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_) {
            return;
        }
        tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
}

void EngineThread::ring_at(Instant at) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (alarm_ && *alarm_ <= at) {
            return;
        }
        alarm_ = at;
    }
    wake_.notify_one();
}

size_t EngineThread::queued() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.size();
}

void EngineThread::ring_if_due() {
    const Instant now = std::chrono::steady_clock::now();
    if (alarm_ && *alarm_ <= now && !stopping_) {
        alarm_.reset();
        tasks_.push_back([this, now] { on_alarm_(now); });
    }
}

void EngineThread::run() {
    for (;;) {
        std::function<void()> task;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            ring_if_due();
            while (!stopping_ && tasks_.empty()) {
                if (alarm_) {
                    const Instant until = *alarm_;  // it may be moved meanwhile
                    wake_.wait_until(lock, until);
                } else {
                    wake_.wait(lock);
                }
                ring_if_due();
            }
            if (tasks_.empty()) {
                return;
            }
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        task();
    }
}

}  // namespace dgr

// In the place of rpc/engine-thread.cpp: no thread. What is posted waits until the run lets it happen, so that every
// run of an input is the same, and takes no turns with a scheduler.

#include "engine-thread.h"

#include "rpc/engine-thread.h"

#include <functional>
#include <map>

namespace dgr {

namespace {

std::map<const EngineThread *, std::function<void()>> & engines() {
    static std::map<const EngineThread *, std::function<void()>> all;
    return all;
}

}  // namespace

EngineThread::EngineThread() {
    engines()[this] = [this] { run(); };
}

void EngineThread::stop() {
    run();
    stopping_ = true;
    engines().erase(this);
}

void EngineThread::post(std::function<void()> task) {
    if (!stopping_) {
        tasks_.push_back(std::move(task));
    }
}

// Time stands still: no lease ever ends.
void EngineThread::ring_at(Instant) {}

size_t EngineThread::queued() const {
    return tasks_.size();
}

void EngineThread::run() {
    while (!tasks_.empty()) {
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        task();
    }
}

namespace fuzz {

void run_engines() {
    for (const auto & [engine, run] : engines()) {
        run();
    }
}

}  // namespace fuzz

}  // namespace dgr

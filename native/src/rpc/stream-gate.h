// Orders the operations of one streaming reactor: one write outstanding, no lock held across a gRPC call, the end
// exactly once and only when no operation of ours is on its way.
//
// A reactor may be gone the moment it is ended, and operations come from several threads: everyone holds the gate,
// which outlives the reactor, and never the reactor itself.
//
// Reactor must have: void gate_write(const Message *), void gate_read(), void gate_end(grpc::Status).

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>

namespace dgr {

template <class Reactor, class Message>
class StreamGate {
public:
    explicit StreamGate(Reactor * reactor) : reactor_(reactor) {}

    // Queues a message; after end() it is dropped.
    void send(Message message) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (end_.has_value() || broken_) {
            return;
        }
        queue_.push_back(std::move(message));
        pump(lock);
    }

    // Asks for the next message of the other side.
    void read() {
        std::unique_lock<std::mutex> lock(mutex_);
        if (end_.has_value()) {
            return;
        }
        ++calls_;
        lock.unlock();
        reactor_->gate_read();
        lock.lock();
        --calls_;
        pump(lock);
    }

    // Ends the stream after what is queued; the first status wins.
    void end(grpc::Status status) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (end_.has_value()) {
            return;
        }
        end_ = std::move(status);
        pump(lock);
    }

    // To be called from OnWriteDone.
    void written(bool ok) {
        std::unique_lock<std::mutex> lock(mutex_);
        writing_ = false;
        queue_.pop_front();
        if (!ok) {
            broken_ = true;
            queue_.clear();
        }
        pump(lock);
    }

    bool ended() {
        std::lock_guard<std::mutex> lock(mutex_);
        return end_.has_value();
    }

private:
    void pump(std::unique_lock<std::mutex> & lock) {
        if (!writing_ && !queue_.empty()) {
            writing_ = true;
            ++calls_;
            const Message * message = &queue_.front();  // a deque does not move its front when it grows
            lock.unlock();
            reactor_->gate_write(message);
            lock.lock();
            --calls_;
        }
        if (end_.has_value() && !done_ && calls_ == 0 && !writing_ && queue_.empty()) {
            done_ = true;
            lock.unlock();
            reactor_->gate_end(*end_);
        }
    }

    std::mutex mutex_;
    Reactor *  reactor_;
    std::deque<Message> queue_;
    std::optional<grpc::Status> end_;
    int  calls_   = 0;      // gRPC calls of ours on their way
    bool writing_ = false;  // a write is outstanding
    bool broken_  = false;  // the other side takes no more
    bool done_    = false;
};

}  // namespace dgr

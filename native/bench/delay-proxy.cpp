#include "bench/delay-proxy.h"

#include "bench/bench-route.h"

#include <sys/prctl.h>

#include <utility>

namespace dgr::bench {

namespace {

constexpr size_t PIECE_BYTES   = size_t(256) << 10;
constexpr size_t WAITING_BYTES = size_t(256) << 20;  // on the wire at most; far beyond what benchmarks send

// The kernel would let a sleep be 50 us longer to save power.
void sleep_exactly() {
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

struct Piece {
    Clock::time_point due;
    std::string       bytes;  // empty: the other side sends no more
};

// One direction of a connection: one thread takes bytes, one hands them on when it is their time.
class Direction {
public:
    Direction(const Socket & from, const Socket & to, std::chrono::microseconds one_way)
        : from_(from), to_(to), one_way_(one_way), taker_([this] { take(); }), giver_([this] { give(); }) {}

    void join() {
        taker_.join();
        giver_.join();
    }

private:
    void take() {
        std::string buffer(PIECE_BYTES, '\0');
        for (;;) {
            const size_t got = from_.receive(buffer.data(), buffer.size());
            Piece piece{Clock::now() + one_way_, buffer.substr(0, got)};
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return waiting_ < WAITING_BYTES || broken_; });
            waiting_ += got;
            pieces_.push_back(std::move(piece));
            changed_.notify_all();
            if (got == 0 || broken_) {
                return;
            }
        }
    }

    void give() {
        sleep_exactly();
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return !pieces_.empty(); });
            const Piece piece = std::move(pieces_.front());
            pieces_.pop_front();
            waiting_ -= piece.bytes.size();
            changed_.notify_all();
            lock.unlock();
            std::this_thread::sleep_until(piece.due);
            if (piece.bytes.empty()) {
                to_.send_no_more();
                return;
            }
            if (!to_.send_all(piece.bytes.data(), piece.bytes.size())) {
                lock.lock();
                broken_ = true;
                changed_.notify_all();
                from_.hang_up();
                return;
            }
        }
    }

    const Socket & from_;
    const Socket & to_;
    const std::chrono::microseconds one_way_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> pieces_;
    size_t waiting_ = 0;
    bool   broken_  = false;
    std::thread taker_;  // last: they use all of the above
    std::thread giver_;
};

}  // namespace

class DelayProxy::Connection {
public:
    Connection(Socket caller, Socket target, std::chrono::microseconds one_way)
        : caller_(std::move(caller)), target_(std::move(target)),
          there_(caller_, target_, one_way), back_(target_, caller_, one_way) {}

    ~Connection() {
        caller_.hang_up();
        target_.hang_up();
        there_.join();
        back_.join();
    }

private:
    Socket    caller_;
    Socket    target_;
    Direction there_;
    Direction back_;
};

DelayProxy::DelayProxy(std::string target, std::chrono::microseconds one_way)
    : target_(std::move(target)), one_way_(one_way), listener_(listen_on_loopback(port_)) {
    if (!listener_.valid()) {
        throw BenchError("the proxy cannot listen");
    }
    thread_ = std::thread([this] { serve(); });
}

DelayProxy::~DelayProxy() {
    listener_.hang_up();
    thread_.join();
    connections_.clear();
}

void DelayProxy::serve() {
    for (;;) {
        Socket caller = accept_from(listener_);
        if (!caller.valid()) {
            return;
        }
        Socket target = connect_to_address(target_);
        if (target.valid()) {
            connections_.push_back(std::make_unique<Connection>(std::move(caller), std::move(target), one_way_));
        }
    }
}

}  // namespace dgr::bench

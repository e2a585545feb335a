#include "bench/session-times.h"

#include <algorithm>
#include <exception>

namespace dgr::bench {

namespace {

// Lets threads go on when all have come that are still taking part.
class Meeting {
public:
    explicit Meeting(uint32_t members) : members_(members) {}

    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const uint64_t round = round_;
        ++here_;
        open_if_all();
        opened_.wait(lock, [&] { return round_ != round; });
    }

    // This member comes to no further meeting.
    void leave() {
        std::lock_guard<std::mutex> lock(mutex_);
        --members_;
        open_if_all();
    }

private:
    void open_if_all() {
        if (here_ > 0 && here_ >= members_) {
            here_ = 0;
            ++round_;
            opened_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable opened_;
    uint32_t members_;
    uint32_t here_  = 0;
    uint64_t round_ = 0;
};

struct Span {
    Clock::time_point begin;
    Clock::time_point end;
};

class Run {
public:
    Run(const BenchRoute & route, const Shape & shape, Meeting & meeting, uint32_t number)
        : route_(route), shape_(shape), meeting_(meeting), number_(number) {}

    void operator()() {
        try {
            BenchSession session(route_, shape_.prefill_rows + shape_.decode_tokens);
            meeting_.wait();
            const int32_t token = prefill(session);
            meeting_.wait();
            decode(session, token);
        } catch (...) {
            error = std::current_exception();
        }
        meeting_.leave();
    }

    SessionTimes       times;
    Span               prefilled{};
    Span               decoded{};
    std::exception_ptr error;

private:
    int32_t prefill(BenchSession & session) {
        const std::vector<int32_t> ids = made_tokens(shape_.prefill_rows, route_.n_vocab(), number_ + 1);
        const uint32_t most = shape_.frame_rows == 0 ? route_.n_ubatch() : shape_.frame_rows;
        prefilled.begin = Clock::now();
        for (uint32_t at = 0; at < ids.size(); at += most) {
            const uint32_t rows = std::min<uint32_t>(most, static_cast<uint32_t>(ids.size()) - at);
            session.send(session.frame(ids.data() + at, rows, at + rows == ids.size()));
            ++times.frames;
        }
        const wire::Result result = session.receive(session.sent() - 1);
        prefilled.end    = Clock::now();
        times.prefill_us = std::chrono::duration<double, std::micro>(prefilled.end - prefilled.begin).count();
        return result.token();
    }

    void decode(BenchSession & session, int32_t token) {
        decoded.begin = Clock::now();
        for (uint32_t i = 0; i < shape_.decode_tokens; ++i) {
            const Clock::time_point begin = Clock::now();
            session.send(session.frame(&token, 1, true));
            const wire::Result result = session.receive(session.sent() - 1);
            times.token_us.push_back(us_since(begin));
            times.tail_us.push_back(result.compute_us());
            token = result.token();
        }
        decoded.end = Clock::now();
    }

    const BenchRoute & route_;
    const Shape        shape_;
    Meeting &          meeting_;
    const uint32_t     number_;
};

double around(const std::vector<std::unique_ptr<Run>> & runs, Span Run::*span) {
    Span whole = *runs.front().*span;
    for (const auto & run : runs) {
        whole.begin = std::min(whole.begin, ((*run).*span).begin);
        whole.end   = std::max(whole.end, ((*run).*span).end);
    }
    return std::chrono::duration<double, std::micro>(whole.end - whole.begin).count();
}

}  // namespace

RunTimes run_sessions(const BenchRoute & route, const Shape & shape) {
    Meeting meeting(shape.sessions);
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < shape.sessions; ++i) {
        runs.push_back(std::make_unique<Run>(route, shape, meeting, i));
    }
    for (const auto & run : runs) {
        threads.emplace_back([one = run.get()] { (*one)(); });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    RunTimes times;
    for (const auto & run : runs) {
        if (run->error) {
            std::rethrow_exception(run->error);
        }
        times.sessions.push_back(run->times);
    }
    times.prefill_us = around(runs, &Run::prefilled);
    times.decode_us  = around(runs, &Run::decoded);
    return times;
}

}  // namespace dgr::bench

// Reactions of many calls on several threads at once, as gRPC makes them, without gRPC in between: with a thread
// sanitizer every step that hands something on is then seen, which is not so inside of gRPC's libraries.

#include "fake-engine.h"
#include "rpc/execute.h"
#include "rpc/results.h"
#include "rpc/stage.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <random>

namespace dgr {

namespace {

// Does what is handed to it on a few threads, in no particular order.
class Pool {
public:
    explicit Pool(int n) {
        for (int i = 0; i < n; ++i) {
            threads_.emplace_back([this] { work(); });
        }
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread & thread : threads_) {
            thread.join();
        }
    }

    void add(std::function<void()> task) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        wake_.notify_one();
    }

private:
    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
            if (tasks_.empty()) {
                return;
            }
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

// One streaming call: every operation that the worker starts is answered by some thread of the pool, and the call is
// done after Finish and every reaction, as with gRPC.
template <class Base, class Response, class Reactor>
class Call : public Base {
public:
    Call(Pool & pool, Reactor * worker) : pool_(pool), worker_(worker) {}

    void start() { this->BindReactor(worker_); }

    void Write(const Response *, grpc::WriteOptions) override {
        react([this] {
            ++answers;
            worker_->OnWriteDone(true);
        });
    }

    void Finish(grpc::Status) override { one_less(); }

    void cancel() {
        if (!cancelled_.exchange(true)) {
            react([this] { worker_->OnCancel(); });
        }
    }

    bool wait() { return over_.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready; }

    void SendInitialMetadata() override {}
    void WriteAndFinish(const Response *, grpc::WriteOptions, grpc::Status) override {}

    std::atomic<int> answers{0};

protected:
    // Nothing happens to a call that is done.
    void react(std::function<void()> reaction) {
        int left = left_;
        while (left != 0 && !left_.compare_exchange_weak(left, left + 1)) {
        }
        if (left != 0) {
            pool_.add([this, reaction = std::move(reaction)] {
                reaction();
                one_less();
            });
        }
    }

    Reactor * worker() { return worker_; }

private:
    void one_less() {
        if (--left_ == 0) {
            pool_.add([this] {
                worker_->OnDone();  // deletes it
                over_.set_value();
            });
        }
    }

    grpc::internal::ServerReactor * reactor() override { return nullptr; }
    void CallOnDone() override {}

    Pool &             pool_;
    Reactor *          worker_;
    std::atomic<int>   left_{1};  // Finish, and reactions that are due
    std::atomic<bool>  cancelled_{false};
    std::promise<void> over_;
};

class ExecuteCall final : public Call<grpc::ServerCallbackReaderWriter<wire::ExecuteRequest, wire::ExecuteResponse>,
                                      wire::ExecuteResponse, ExecuteReactor> {
public:
    ExecuteCall(Pool & pool, const std::shared_ptr<Stage> & stage, std::deque<wire::ExecuteRequest> messages)
        : Call(pool, new ExecuteReactor(stage)), messages_(std::move(messages)) {
        start();
    }

    // After the last message the client says nothing more, and does not half-close either.
    void Read(wire::ExecuteRequest * request) override {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!messages_.empty()) {
            react([this, request, message = messages_.front()] {
                *request = message;
                worker()->OnReadDone(true);
            });
            messages_.pop_front();
        }
    }

private:
    std::mutex mutex_;
    std::deque<wire::ExecuteRequest> messages_;
};

class ResultsCall final : public Call<grpc::ServerCallbackWriter<wire::ResultsResponse>, wire::ResultsResponse, ResultsReactor> {
public:
    ResultsCall(Pool & pool, const std::shared_ptr<Stage> & stage, const wire::ResultsRequest & request)
        : Call(pool, new ResultsReactor(stage, request)) {
        start();
    }
};

// Does something on the engine thread and waits for it.
void on_engine_thread(Stage & stage, const std::function<void()> & task) {
    std::promise<void> done;
    stage.post([&] {
        task();
        done.set_value();
    });
    done.get_future().wait();
}

wire::OpenSessionRequest open_request(const std::string & id, uint64_t epoch, bool chain) {
    wire::OpenSessionRequest request;
    request.set_session(id);
    request.set_epoch(epoch);
    request.set_key("key");
    request.mutable_cache()->set_n_ctx(64);
    request.mutable_predecessor()->set_client(true);
    request.set_results_chain(chain);
    return request;
}

// A hello and frames of one token each.
std::deque<wire::ExecuteRequest> messages_of(const std::string & id, uint64_t epoch, const std::string & artifact, int frames) {
    std::deque<wire::ExecuteRequest> messages(1);
    messages.front().mutable_hello()->mutable_sender()->set_client(true);
    messages.front().mutable_hello()->set_key("key");
    Digest prefix = prefix_start(digest_from_hex(artifact));
    for (int i = 0; i < frames; ++i) {
        wire::Frame & frame = *messages.emplace_back().mutable_frame();
        const int32_t token = i % 16;
        frame.set_sequence(i);
        frame.set_first_position(i);
        frame.add_token_ids(token);
        frame.set_prefix_hash_before(std::string(as_bytes(prefix)));
        prefix = prefix_next(prefix, &token, 1);
        frame.set_prefix_hash_after(std::string(as_bytes(prefix)));
        frame.set_want_token(true);
    }
    for (wire::ExecuteRequest & message : messages) {
        message.set_session(id);
        message.set_epoch(epoch);
    }
    return messages;
}

}  // namespace

// Sessions come, are cancelled, replaced and closed while their frames are under way.
TEST(Threads, EveryCallEndsOnceAndEverySlotComesBack) {
    constexpr int ROUNDS = 40, SESSIONS = 4, FRAMES = 12;
    const std::string artifact(64, 'a');
    std::mt19937 random(7);
    Pool pool(3);
    for (int round = 0; round < ROUNDS; ++round) {
        FakeSettings settings;
        settings.slots = SESSIONS;
        const auto knobs = std::make_shared<FakeEngine::Knobs>();
        const auto stage = std::make_shared<Stage>(std::make_unique<FakeEngine>(settings, knobs), BuildInfo(), artifact, Mode::exact, NextStages{});
        std::vector<std::unique_ptr<ExecuteCall>> executes;
        std::vector<std::unique_ptr<ResultsCall>> results;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
            for (int i = 0; i < SESSIONS; ++i) {
                const std::string id = "s" + std::to_string(i);
                const bool chain = i % 2 == 0;
                grpc::Status opened;
                on_engine_thread(*stage, [&] {
                    wire::OpenSessionResponse response;
                    opened = stage->open(open_request(id, epoch, chain), response);
                });
                ASSERT_TRUE(opened.ok()) << opened.error_message();
                if (!chain) {
                    wire::ResultsRequest request;
                    request.set_session(id);
                    request.set_epoch(epoch);
                    request.set_key("key");
                    results.push_back(std::make_unique<ResultsCall>(pool, stage, request));
                }
                executes.push_back(std::make_unique<ExecuteCall>(pool, stage, messages_of(id, epoch, artifact, FRAMES)));
            }
            for (int i = 0; i < 6; ++i) {
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                if (random() % 3 == 0) {
                    executes[random() % executes.size()]->cancel();
                } else if (!results.empty() && random() % 3 == 0) {
                    results[random() % results.size()]->cancel();
                }
                EXPECT_LE(stage->status().slots_free(), static_cast<uint32_t>(SESSIONS));
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        stage->refuse_new_work();
        on_engine_thread(*stage, [&] { stage->end_all(); });
        for (const auto & call : executes) {
            call->cancel();  // a hello that came after the end waits for nothing else
            ASSERT_TRUE(call->wait());
        }
        for (const auto & call : results) {
            call->cancel();
            ASSERT_TRUE(call->wait());
        }
        const wire::StatusResponse status = stage->status();
        EXPECT_EQ(status.slots_free(), static_cast<uint32_t>(SESSIONS));
        EXPECT_EQ(status.executed_frames(), static_cast<uint64_t>(knobs->executed));
        stage->stop();
    }
}

}  // namespace dgr

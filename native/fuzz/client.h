// A client that remembers what it was told, and holds every later answer against it.

#pragma once

#include "input.h"
#include "world.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dgr::fuzz {

// A session as the first stage of the world has it.
struct Conversation {
    uint64_t epoch = 0;
    bool     chain = false;
    uint32_t slot  = 0;
    std::string key;
    bool     gone    = false;           // the stage has dropped it
    bool     trusted = true;            // its epoch was never used before, as the contract asks
    std::vector<wire::Frame> accepted;  // by sequence

    uint32_t rows() const;
};

// An Execute stream to the first stage.
struct Stream {
    ExecuteCall * call = nullptr;
    std::string   id;
    uint64_t      epoch  = 0;
    bool          closed = false;  // its answers mean nothing any more
    bool          ended  = false;
    std::deque<wire::Frame> pending;  // sent, not answered
};

class Client {
public:
    Client(World & world, Input & input);

    void open();
    void hello();
    void frame();
    void repeat();
    void spoilt_frame();
    void conflicting_frame();
    void half_close();
    void cancel();
    void close();
    void attach();
    void leave_results();
    void stall();
    void break_writes();
    void fail_engine();
    void drain();
    void play_next();

    // Everything that must hold whenever the calls are at rest.
    void check();

    void finish();

private:
    std::string    some_id();
    Conversation * find(const std::string & id, uint64_t epoch);
    Stream *       some_stream();
    wire::ExecuteRequest next_frame(const Stream & stream, const std::vector<wire::Frame> & before);
    std::vector<wire::Frame> known_frames(const std::string & id, uint64_t epoch);
    void fill(wire::Frame & frame, uint32_t rows);
    void send(Stream & stream, const wire::ExecuteRequest & request);
    void answered(Stream & stream, const wire::ExecuteResponse & response);
    void ended(Stream & stream, const grpc::Status & status);
    void check_result(const std::string & id, uint64_t epoch, const wire::Result & result);
    void lose(Stream & stream);  // no more answers come: what was executed shows in the position
    void play(NextCall & next);

    World & world_;
    Input & input_;
    bool    failed_  = false;  // an engine was made to fail
    bool    drained_ = false;
    std::map<std::string, Conversation>  conversations_;
    std::map<std::string, uint64_t>      highest_;  // epoch that was asked for, by session
    std::vector<std::unique_ptr<Stream>> streams_;
    std::map<const NextCall *, std::vector<wire::ExecuteRequest>> played_;  // what each has received
};

}  // namespace dgr::fuzz

// A TCP proxy on loopback that hands bytes on a fixed time after they came, in each direction: a long wire of any
// width.

#pragma once

#include "bench/tcp.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dgr::bench {

class DelayProxy {
public:
    // `target`: HOST:PORT with a numeric host.
    DelayProxy(std::string target, std::chrono::microseconds one_way);
    ~DelayProxy();

    int port() const { return port_; }

private:
    class Connection;
    void serve();

    const std::string               target_;
    const std::chrono::microseconds one_way_;
    int    port_ = 0;
    Socket listener_;
    std::vector<std::unique_ptr<Connection>> connections_;  // of the thread below until it ends
    std::thread thread_;
};

}  // namespace dgr::bench

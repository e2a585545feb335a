// Answers GET /metrics over HTTP, one request at a time, on a thread of its own.
//
// No library does it: prometheus-cpp and civetweb come as shared libraries alone in every Debian release, and a worker
// is one program that needs nothing beside the C and C++ libraries. A page of text is not worth giving that up.

#pragma once

#include <functional>
#include <string>
#include <thread>

namespace dgr {

// Throws std::invalid_argument for what is no numeric address with a port, and for one beyond loopback unless that is
// insisted on: what is answered is plain text for everyone who reaches the port.
void check_metrics_address(const std::string & address, bool beyond_loopback);

class MetricsServer {
public:
    // `text` is called for each request, on this server's thread.
    // Throws std::invalid_argument as above, and std::runtime_error when it cannot listen.
    MetricsServer(const std::string & address, std::function<std::string()> text, bool beyond_loopback = false);
    ~MetricsServer();

    MetricsServer(const MetricsServer &) = delete;
    MetricsServer & operator=(const MetricsServer &) = delete;

    int port() const { return port_; }

private:
    void run();
    void answer(int client) const;

    const std::function<std::string()> text_;
    int         listener_ = -1;
    int         stop_[2]  = {-1, -1};  // a pipe: closing its end wakes the thread
    int         port_     = 0;
    std::thread thread_;
};

}  // namespace dgr

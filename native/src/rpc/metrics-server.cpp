#include "rpc/metrics-server.h"

#include "rpc/address.h"
#include "rpc/exposition.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace dgr {

static constexpr size_t MAX_REQUEST = 8192;
static constexpr auto   PATIENCE    = std::chrono::seconds(2);  // for a request to come, and for its answer to go

using Deadline = std::chrono::steady_clock::time_point;

static Deadline from_now() {
    return std::chrono::steady_clock::now() + PATIENCE;
}

static bool wait_for(int fd, short what, Deadline deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd one{fd, what, 0};
    return left > 0 && poll(&one, 1, static_cast<int>(left)) == 1;
}

static bool prepare(int fd) {
    return fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static int bind_to(const Address & address) {
    const int fd = socket(address.ip.size() == 16 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    const int yes = 1;
    if (!prepare(fd) || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
        return fd;
    }
    if (address.ip.size() == 16) {
        sockaddr_in6 name{};
        name.sin6_family = AF_INET6;
        name.sin6_port   = htons(address.port);
        std::copy(address.ip.begin(), address.ip.end(), name.sin6_addr.s6_addr);
        bind(fd, reinterpret_cast<sockaddr *>(&name), sizeof name);
    } else {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port   = htons(address.port);
        std::memcpy(&name.sin_addr, address.ip.data(), sizeof name.sin_addr);
        bind(fd, reinterpret_cast<sockaddr *>(&name), sizeof name);
    }
    return fd;
}

// 0 where it was not bound: listening would then take any port of any address.
static int port_of(int fd) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (fd < 0 || getsockname(fd, reinterpret_cast<sockaddr *>(&name), &size) != 0) {
        return 0;
    }
    return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&name)->sin6_port
                                            : reinterpret_cast<sockaddr_in *>(&name)->sin_port);
}

void check_metrics_address(const std::string & text, bool beyond_loopback) {
    const auto address = Address::parse(text);
    if (!address || address->is_name()) {
        throw std::invalid_argument("--metrics-listen '" + text + "' is no address with a port: 127.0.0.1:9400, [::1]:9400");
    }
    if (!beyond_loopback && !address->is_loopback()) {
        throw std::invalid_argument("--metrics-listen '" + text + "' is not a loopback address, and metrics are told to everyone "
            "who reaches the port: listen on 127.0.0.1, or insist with --metrics-beyond-loopback");
    }
}

MetricsServer::MetricsServer(const std::string & address, std::function<std::string()> text, bool beyond_loopback)
    : text_(std::move(text)) {
    check_metrics_address(address, beyond_loopback);
    errno     = 0;
    listener_ = bind_to(*Address::parse(address));
    port_     = port_of(listener_);
    if (port_ == 0 || listen(listener_, 16) != 0 || pipe(stop_) != 0 || !prepare(stop_[0]) || !prepare(stop_[1])) {
        const std::string reason = std::strerror(errno);
        for (const int fd : {listener_, stop_[0], stop_[1]}) {
            if (fd >= 0) {
                close(fd);
            }
        }
        throw std::runtime_error("cannot listen for metrics on " + address + ": " + reason);
    }
    thread_ = std::thread([this] { run(); });
}

MetricsServer::~MetricsServer() {
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
    close(listener_);
}

void MetricsServer::run() {
    for (;;) {
        pollfd both[2] = {{listener_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
        if (poll(both, 2, -1) < 0 && errno != EINTR) {
            return;
        }
        if (both[1].revents != 0) {
            return;
        }
        const int client = both[0].revents != 0 ? accept(listener_, nullptr, nullptr) : -1;
        if (client < 0) {
            continue;
        }
        if (prepare(client)) {
            answer(client);
        }
        close(client);
    }
}

static std::string read_request(int client) {
    const Deadline deadline = from_now();
    std::string request;
    while (request.size() < MAX_REQUEST && request.find("\r\n\r\n") == std::string::npos && wait_for(client, POLLIN, deadline)) {
        char part[1024];
        const ssize_t size = recv(client, part, sizeof part, 0);
        if (size <= 0) {
            break;
        }
        request.append(part, static_cast<size_t>(size));
    }
    return request;
}

static void send_all(int client, const std::string & out) {
    const Deadline deadline = from_now();
#ifdef MSG_NOSIGNAL
    constexpr int FLAGS = MSG_NOSIGNAL;
#else
    constexpr int FLAGS = 0;  // the worker ignores SIGPIPE
#endif
    for (size_t sent = 0; sent < out.size() && wait_for(client, POLLOUT, deadline);) {
        const ssize_t size = send(client, out.data() + sent, out.size() - sent, FLAGS);
        if (size <= 0) {
            return;
        }
        sent += static_cast<size_t>(size);
    }
}

void MetricsServer::answer(int client) const {
    const std::string request = read_request(client);
    const std::string line = request.substr(0, request.find("\r\n"));
    std::string status = "200 OK", body;
    if (request.find("\r\n\r\n") == std::string::npos) {
        status = "400 Bad Request";
    } else if (line.rfind("GET ", 0) != 0) {
        status = "405 Method Not Allowed";
    } else if (line.rfind("GET /metrics ", 0) != 0 && line.rfind("GET /metrics?", 0) != 0) {
        status = "404 Not Found";
    } else {
        body = text_();
    }
    send_all(client, "HTTP/1.1 " + status + "\r\nContent-Type: " + Exposition::CONTENT_TYPE + "\r\nContent-Length: "
        + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body);
}

}  // namespace dgr

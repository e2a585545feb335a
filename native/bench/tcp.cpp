#include "bench/tcp.h"

#include "bench/bench-route.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dgr::bench {

static void send_at_once(int descriptor) {
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Socket::~Socket() {
    if (valid()) {
        ::close(descriptor_);
    }
}

Socket::Socket(Socket && other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket & Socket::operator=(Socket && other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

void Socket::hang_up() const {
    ::shutdown(descriptor_, SHUT_RDWR);
}

size_t Socket::receive(char * data, size_t size) const {
    for (;;) {
        const ssize_t got = ::recv(descriptor_, data, size, 0);
        if (got >= 0 || errno != EINTR) {
            return got > 0 ? static_cast<size_t>(got) : 0;
        }
    }
}

bool Socket::send_all(const char * data, size_t size) const {
    while (size > 0) {
        const ssize_t sent = ::send(descriptor_, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= static_cast<size_t>(sent);
    }
    return true;
}

void Socket::send_no_more() const {
    ::shutdown(descriptor_, SHUT_WR);
}

Socket listen_on_loopback(int & port) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (!socket.valid() || ::bind(socket.get(), reinterpret_cast<sockaddr *>(&address), size) != 0
        || ::listen(socket.get(), 128) != 0
        || ::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        return Socket();
    }
    port = ntohs(address.sin_port);
    return socket;
}

Socket accept_from(const Socket & listener) {
    for (;;) {
        const int descriptor = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (descriptor < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (descriptor >= 0) {
            send_at_once(descriptor);
        }
        return Socket(descriptor);
    }
}

Socket connect_to_address(const std::string & address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    if (colon == std::string::npos || inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) != 1) {
        throw BenchError(address + " is not HOST:PORT with a numeric host");
    }
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<sockaddr *>(&to), sizeof(to)) != 0) {
        return Socket();
    }
    send_at_once(socket.get());
    return socket;
}

TcpEcho::TcpEcho() : listener_(listen_on_loopback(port_)) {
    if (!listener_.valid()) {
        throw BenchError("the TCP echo cannot listen");
    }
    thread_ = std::thread([this] { serve(); });
}

TcpEcho::~TcpEcho() {
    listener_.hang_up();
    thread_.join();
}

// One caller after the other: a benchmark has one at a time.
void TcpEcho::serve() {
    std::vector<char> buffer(1 << 16);
    for (;;) {
        const Socket caller = accept_from(listener_);
        if (!caller.valid()) {
            return;
        }
        size_t got = 0;
        while ((got = caller.receive(buffer.data(), buffer.size())) > 0 && caller.send_all(buffer.data(), got)) {
        }
    }
}

std::vector<double> time_tcp_echo(const std::string & address, size_t bytes, uint32_t count) {
    const Socket socket = connect_to_address(address);
    if (!socket.valid()) {
        throw BenchError("nobody listens at " + address);
    }
    std::vector<char> out(bytes, 'x');
    std::vector<char> in(bytes);
    std::vector<double> times;
    while (times.size() < count) {
        const Clock::time_point begin = Clock::now();
        bool well = socket.send_all(out.data(), out.size());
        for (size_t got = 0; well && got < bytes;) {
            const size_t more = socket.receive(in.data() + got, bytes - got);
            well = more > 0;
            got += more;
        }
        if (!well) {
            throw BenchError("the echo at " + address + " ended");
        }
        times.push_back(us_since(begin));
    }
    return times;
}

}  // namespace dgr::bench

// Plain TCP on loopback: sockets, an echo without gRPC, and how long it takes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace dgr::bench {

// Owns a descriptor.
class Socket {
public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    ~Socket();

    Socket(Socket && other) noexcept;
    Socket & operator=(Socket && other) noexcept;

    int  get() const { return descriptor_; }
    bool valid() const { return descriptor_ >= 0; }

    // Ends both ways; whoever waits in it returns.
    void hang_up() const;

    // What has come, at most `size` bytes; 0 at the end.
    size_t receive(char * data, size_t size) const;
    bool   send_all(const char * data, size_t size) const;
    void   send_no_more() const;

private:
    int descriptor_ = -1;
};

// Listens on a free loopback port; invalid when it cannot. `port` says which.
Socket listen_on_loopback(int & port);
Socket accept_from(const Socket & listener);

// To HOST:PORT with a numeric host; invalid when nobody listens.
Socket connect_to_address(const std::string & address);

// Sends every byte back.
class TcpEcho {
public:
    TcpEcho();
    ~TcpEcho();
    int port() const { return port_; }

private:
    void serve();

    int         port_ = 0;
    Socket      listener_;
    std::thread thread_;
};

// Microseconds for each of `count` messages of `bytes` bytes there and back.
std::vector<double> time_tcp_echo(const std::string & address, size_t bytes, uint32_t count);

}  // namespace dgr::bench

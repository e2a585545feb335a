// Addresses as people write them, HOST:PORT, and the list of those that a worker may connect to.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dgr {

struct Address {
    std::string          host;    // lower case, without brackets
    std::vector<uint8_t> ip;      // 4 or 16 bytes; empty for a name
    uint16_t             port = 0;

    // HOST:PORT, or [HOST]:PORT for IPv6; nothing for anything else, gRPC's own schemes included.
    static std::optional<Address> parse(const std::string & text);

    bool is_name() const { return ip.empty(); }

    // 127.0.0.0/8, ::1 and "localhost".
    bool is_loopback() const;
};

bool is_loopback(const std::string & address);

// The next stages that clients may send a worker to. Names are compared as they are written and never resolved, so
// that nobody's name service can put an address on the list.
class AllowList {
public:
    AllowList() = default;  // loopback

    // HOST[:PORT], where HOST is a name, *.NAME for all names below it, an address, or a network such as 10.0.0.0/8;
    // IPv6 takes brackets before a port: [fd00::/8]:7001. None at all: loopback.
    // Throws std::invalid_argument for a pattern that is none of these.
    explicit AllowList(const std::vector<std::string> & patterns);

    bool allows(const Address & address) const;
    bool reaches_beyond_loopback() const;
    std::string to_text() const;

private:
    struct Pattern {
        std::string             text;
        std::string             name;    // "*.example.org" for all below; empty for a network
        std::vector<uint8_t>    ip;
        unsigned                bits = 0;
        std::optional<uint16_t> port;

        bool allows(const Address & address) const;
    };

    static Pattern parse(const std::string & text);

    std::vector<Pattern> patterns_;
};

}  // namespace dgr

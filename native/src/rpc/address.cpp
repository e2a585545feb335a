#include "rpc/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace dgr {

static constexpr size_t V4_BYTES = 4;
static constexpr size_t V6_BYTES = 16;
static constexpr size_t MAX_NAME = 253;

static std::optional<unsigned> number(const std::string & text, unsigned most) {
    const bool digits = !text.empty() && text.size() <= 5
        && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!digits || std::stoul(text) > most) {
        return std::nullopt;
    }
    return static_cast<unsigned>(std::stoul(text));
}

static std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// The bytes of an address in figures. IPv4 inside IPv6 is IPv4: both reach the same host.
static std::vector<uint8_t> ip_of(const std::string & text) {
    std::vector<uint8_t> bytes(V6_BYTES);
    if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) {
        const std::vector<uint8_t> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        if (std::equal(mapped.begin(), mapped.end(), bytes.begin())) {
            bytes.erase(bytes.begin(), bytes.begin() + static_cast<long>(mapped.size()));
        }
        return bytes;
    }
    bytes.resize(V4_BYTES);
    return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ? bytes : std::vector<uint8_t>();
}

// Letters, digits, dots, hyphens and underscores, and not figures only: resolvers read "127.1" as an address.
static bool is_name(const std::string & text) {
    const bool plain = !text.empty() && text.size() <= MAX_NAME && text.front() != '.' && text.front() != '-'
        && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
    const size_t last = text.rfind('.') == std::string::npos ? 0 : text.rfind('.') + 1;
    return plain && last < text.size() && !std::isdigit(static_cast<unsigned char>(text[last]));
}

static bool is_loopback(const std::vector<uint8_t> & ip) {
    const bool v6 = ip.size() == V6_BYTES && ip.back() == 1 && std::all_of(ip.begin(), ip.end() - 1, [](uint8_t byte) { return byte == 0; });
    return v6 || (ip.size() == V4_BYTES && ip.front() == 127);
}

// HOST, HOST:PORT, [HOST] and [HOST]:PORT taken apart; the port is empty where there is none.
struct Parts {
    std::string host;
    std::string port;
    bool        bracketed = false;
    bool        has_port  = false;
};

static std::optional<Parts> take_apart(const std::string & text) {
    Parts parts;
    if (!text.empty() && text.front() == '[') {
        const size_t end = text.find(']');
        if (end == std::string::npos || (end + 1 < text.size() && text[end + 1] != ':')) {
            return std::nullopt;
        }
        parts.bracketed = true;
        parts.has_port  = end + 1 < text.size();
        parts.host      = text.substr(1, end - 1);
        parts.port      = parts.has_port ? text.substr(end + 2) : "";
        return parts;
    }
    const size_t colon = text.find(':');
    parts.has_port = colon != std::string::npos && colon == text.rfind(':');  // more colons are IPv6 without a port
    parts.host     = parts.has_port ? text.substr(0, colon) : text;
    parts.port     = parts.has_port ? text.substr(colon + 1) : "";
    return parts;
}

std::optional<Address> Address::parse(const std::string & text) {
    const auto parts = take_apart(text);
    const auto port  = parts && parts->has_port ? number(parts->port, UINT16_MAX) : std::nullopt;
    if (!port) {
        return std::nullopt;
    }
    Address address;
    address.host = lower(parts->host);
    address.ip   = ip_of(address.host);
    address.port = static_cast<uint16_t>(*port);
    const bool v6 = address.host.find(':') != std::string::npos;
    if (v6 != parts->bracketed || (address.ip.empty() && !dgr::is_name(address.host))) {
        return std::nullopt;
    }
    return address;
}

bool Address::is_loopback() const {
    return host == "localhost" || dgr::is_loopback(ip);
}

bool is_loopback(const std::string & text) {
    const auto address = Address::parse(text);
    return address && address->is_loopback();
}

AllowList::AllowList(const std::vector<std::string> & patterns) {
    std::transform(patterns.begin(), patterns.end(), std::back_inserter(patterns_), &AllowList::parse);
}

AllowList::Pattern AllowList::parse(const std::string & text) {
    const auto refused = [&](const std::string & why) {
        return std::invalid_argument("--allow-next '" + text + "' names no next stage: " + why
            + "; legal: HOST[:PORT], where HOST is a name, *.NAME, an address or a network such as 10.0.0.0/8");
    };
    const auto parts = take_apart(text);
    if (!parts) {
        throw refused("its brackets do not match");
    }
    Pattern pattern;
    pattern.text = text;
    if (parts->has_port) {
        const auto port = number(parts->port, UINT16_MAX);
        if (!port || *port == 0) {
            throw refused("'" + parts->port + "' is no port");
        }
        pattern.port = static_cast<uint16_t>(*port);
    }
    const std::string host  = lower(parts->host);
    const size_t      slash = host.find('/');
    pattern.ip = ip_of(host.substr(0, slash));
    if (pattern.ip.empty()) {
        const bool below = host.rfind("*.", 0) == 0;
        if (slash != std::string::npos || !is_name(below ? host.substr(2) : host)) {
            throw refused("'" + host + "' is neither a name nor an address");
        }
        pattern.name = host;
        return pattern;
    }
    const auto most = static_cast<unsigned>(pattern.ip.size() * 8);
    const auto bits = slash == std::string::npos ? most : number(host.substr(slash + 1), most);
    if (!bits) {
        throw refused("'" + host.substr(slash + 1) + "' is no number of bits");
    }
    pattern.bits = *bits;
    return pattern;
}

bool AllowList::Pattern::allows(const Address & address) const {
    if (port && *port != address.port) {
        return false;
    }
    if (!name.empty()) {
        const bool below = name.front() == '*';
        const std::string tail = name.substr(below ? 1 : 0);  // ".example.org"
        return below ? address.host.size() > tail.size() && address.is_name()
                && address.host.compare(address.host.size() - tail.size(), tail.size(), tail) == 0
                     : address.host == tail;
    }
    if (address.ip.size() != ip.size()) {
        return false;
    }
    for (unsigned bit = 0; bit < bits; ++bit) {
        if (((address.ip[bit / 8] ^ ip[bit / 8]) >> (7 - bit % 8)) & 1) {
            return false;
        }
    }
    return true;
}

bool AllowList::allows(const Address & address) const {
    if (patterns_.empty()) {
        return address.is_loopback();
    }
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern & pattern) { return pattern.allows(address); });
}

bool AllowList::reaches_beyond_loopback() const {
    return std::any_of(patterns_.begin(), patterns_.end(), [](const Pattern & pattern) {
        const unsigned network = pattern.ip.size() == V4_BYTES ? 8 : V6_BYTES * 8;  // 127.0.0.0/8, ::1/128
        return pattern.name.empty() ? !is_loopback(pattern.ip) || pattern.bits < network : pattern.name != "localhost";
    });
}

std::string AllowList::to_text() const {
    std::string text;
    for (const Pattern & pattern : patterns_) {
        text += (text.empty() ? "" : ", ") + pattern.text;
    }
    return text.empty() ? "loopback" : text;
}

}  // namespace dgr

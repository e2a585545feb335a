#include "rpc/loopback.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace dgr {

static bool is_port(const std::string & text) {
    return !text.empty() && text.size() <= 5
        && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); }) && std::stoi(text) <= 65535;
}

bool is_loopback(const std::string & address) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || !is_port(address.substr(colon + 1))) {
        return false;
    }
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        in6_addr v6;
        return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
    }
    in_addr v4;
    return host == "localhost" || (inet_pton(AF_INET, host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127);
}

}  // namespace dgr

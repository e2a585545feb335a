// Until there is TLS, workers listen and connect on loopback only.

#pragma once

#include <string>

namespace dgr {

// True for HOST:PORT or [HOST]:PORT with a numeric loopback host (127.0.0.0/8, ::1) or "localhost".
bool is_loopback(const std::string & address);

}  // namespace dgr

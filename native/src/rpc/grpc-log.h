// What gRPC itself has to say, such as why a TLS handshake failed, told as events of the worker's log.

#pragma once

namespace dgr {

// Errors become events `grpc`, a few a second at most; the rest is dropped. Call it once, after start_log().
void tell_grpc_errors();

}  // namespace dgr

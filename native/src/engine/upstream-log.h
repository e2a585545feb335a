// What llama.cpp and ggml say: kept out of the way, except that a failure can name its cause.

#pragma once

#include <functional>
#include <string>

namespace dgr {

enum class UpstreamLevel { warning, error };

// Receives warnings and errors, one line each, from any thread. An empty sink drops them (the default).
using UpstreamSink = std::function<void(UpstreamLevel level, const std::string & line)>;

void set_upstream_sink(UpstreamSink sink);

// Installs the handler; safe to call again.
void route_upstream_log();

// Forgets what was kept.
void forget_upstream_error();

// The first error line since forget_upstream_error(), or `otherwise`.
std::string upstream_error(const std::string & otherwise);

}  // namespace dgr

// The worker's log: one line an event, to stderr, each with its time (UTC) and level.
//
//     2026-12-01T15:34:42.288Z info listening address=127.0.0.1:7001 port=7001 tls=false
//     {"time":"2026-12-01T15:34:42.288Z","level":"info","event":"listening","address":"127.0.0.1:7001", ...}
//
// Never in it: token ids, boundary values, text of prompts or answers, keys of sessions.

#pragma once

#include "log/event.h"

#include <ostream>
#include <string_view>

namespace dgr {

enum class LogLevel { debug, info, warning, error, off };
enum class LogFormat { text, json };

struct LogSettings {
    LogFormat format = LogFormat::text;
    LogLevel  level  = LogLevel::info;
};

// Until a log is started, events are dropped.
void start_log(const LogSettings & settings);

// The same, to a stream that must live until stop_log().
void start_log(const LogSettings & settings, std::ostream & out);

void stop_log();

// From any thread.
void log_event(LogLevel level, std::string_view event, const Fields & fields = {});

}  // namespace dgr

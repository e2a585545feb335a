// spdlog, as headers alone: it is nowhere else, so that only this file is compiled with it.

#include "log/event-log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <mutex>

namespace dgr {

namespace {

constexpr const char * TEXT = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char * JSON = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

struct Log {
    LogFormat      format;
    spdlog::logger out;
};

std::mutex           mutex;
std::shared_ptr<Log> current;

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::debug:   return spdlog::level::debug;
        case LogLevel::info:    return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error:   return spdlog::level::err;
        default:                return spdlog::level::off;
    }
}

void start(const LogSettings & settings, spdlog::sink_ptr sink) {
    const char * pattern = settings.format == LogFormat::json ? JSON : TEXT;
    auto log = std::make_shared<Log>(Log{settings.format, spdlog::logger("worker", std::move(sink))});
    log->out.set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc, "\n"));
    log->out.set_level(to_spdlog(settings.level));
    log->out.flush_on(spdlog::level::trace);
    const std::lock_guard<std::mutex> lock(mutex);
    current = std::move(log);
}

}  // namespace

void start_log(const LogSettings & settings) {
    start(settings, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

void start_log(const LogSettings & settings, std::ostream & out) {
    start(settings, std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
}

void stop_log() {
    const std::lock_guard<std::mutex> lock(mutex);
    current.reset();
}

void log_event(LogLevel level, std::string_view event, const Fields & fields) {
    std::shared_ptr<Log> log;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        log = current;
    }
    if (log && log->out.should_log(to_spdlog(level))) {
        // As a value, never as a format: it holds what clients sent.
        const std::string line = log->format == LogFormat::json ? to_json_members(event, fields) : to_text(event, fields);
        log->out.log(to_spdlog(level), spdlog::string_view_t(line));
    }
}

}  // namespace dgr

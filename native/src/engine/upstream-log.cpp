#include "upstream-log.h"

#include "llama.h"

#include <mutex>
#include <utility>

namespace dgr {

namespace {

std::mutex   mutex;
UpstreamSink current_sink;
std::string  kept_error;

void on_log(ggml_log_level level, const char * text, void * /*user_data*/) {
    if (level != GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_ERROR) {
        return;
    }

    std::string line = text;
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
        line.pop_back();
    }
    if (line.empty()) {
        return;
    }

    UpstreamSink sink;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (level == GGML_LOG_LEVEL_ERROR && kept_error.empty()) {
            kept_error = line;
        }
        sink = current_sink;
    }
    if (sink) {
        sink(level == GGML_LOG_LEVEL_ERROR ? UpstreamLevel::error : UpstreamLevel::warning, line);
    }
}

}  // namespace

void set_upstream_sink(UpstreamSink sink) {
    const std::lock_guard<std::mutex> lock(mutex);
    current_sink = std::move(sink);
}

void route_upstream_log() {
    llama_log_set(on_log, nullptr);
}

void forget_upstream_error() {
    const std::lock_guard<std::mutex> lock(mutex);
    kept_error.clear();
}

std::string upstream_error(const std::string & otherwise) {
    const std::lock_guard<std::mutex> lock(mutex);
    return kept_error.empty() ? otherwise : kept_error;
}

}  // namespace dgr

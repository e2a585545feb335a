#include "rpc/grpc-log.h"

#include "log/event-log.h"
#include "log/line-limit.h"

#include <grpcpp/version_info.h>

#include <string>

#define GRPC_HAS_OWN_LOG (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65)  // later it is Abseil's
#if GRPC_HAS_OWN_LOG
#include <grpc/support/log.h>
#else
#include <absl/log/globals.h>
#include <absl/log/log_entry.h>
#include <absl/log/log_sink.h>
#include <absl/log/log_sink_registry.h>
#endif

namespace dgr {

static void tell(const std::string & file, int line, const std::string & message) {
    static LineLimit limit(20, std::chrono::milliseconds(200));
    const auto held_back = limit.take(std::chrono::steady_clock::now());
    if (!held_back) {
        return;
    }
    Fields fields = {{"message", message}, {"at", file.substr(file.rfind('/') + 1) + ":" + std::to_string(line)}};
    if (*held_back > 0) {
        fields.push_back({"held_back", *held_back});
    }
    log_event(LogLevel::warning, "grpc", fields);
}

#if GRPC_HAS_OWN_LOG
void tell_grpc_errors() {
    gpr_set_log_function([](gpr_log_func_args * said) {
        if (said->severity == GPR_LOG_SEVERITY_ERROR) {
            tell(said->file, said->line, said->message);
        }
    });
}
#else
struct Sink final : absl::LogSink {
    void Send(const absl::LogEntry & entry) override {
        if (entry.log_severity() >= absl::LogSeverity::kError) {
            tell(std::string(entry.source_basename()), entry.source_line(), std::string(entry.text_message()));
        }
    }
};

void tell_grpc_errors() {
    static Sink sink;
    absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
    absl::AddLogSink(&sink);
}
#endif

}  // namespace dgr

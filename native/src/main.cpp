// dgr-shard-worker: loads a layer range and serves it. On SIGTERM open sessions may go on for a while; then it ends with 0.
//
// Exit codes are those of the toolchain: 0 done, 2 usage, 9 artifact, 10 worker failed.

#include "build-info.h"
#include "engine/devices.h"
#include "engine/llama-engine.h"
#include "log/event-log.h"
#include "options.h"
#include "rpc/certificates.h"
#include "rpc/grpc-log.h"
#include "rpc/metrics-server.h"
#include "rpc/metrics.h"
#include "rpc/server.h"

#include "ggml-backend.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr int EXIT_USAGE    = 2;
constexpr int EXIT_ARTIFACT = 9;
constexpr int EXIT_WORKER   = 10;

using dgr::log_event;
using dgr::LogLevel;

int report(int code, const std::string & what, const std::string & cause, const std::string & next) {
    log_event(LogLevel::error, "failed", {{"error", what}, {"cause", cause}, {"next", next}});
    return code;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string> backends() {
    std::vector<std::string> names;
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        names.emplace_back(ggml_backend_reg_name(ggml_backend_reg_get(i)));
    }
    return names;
}

void print_version(bool json) {
    const dgr::BuildFacts & facts = dgr::build_facts();
    std::string list;
    for (const std::string & name : backends()) {
        list += (list.empty() ? "" : ", ") + (json ? "\"" + name + "\"" : name);
    }
    const char * format = json
        ? "{\"worker_version\": \"%s\", \"lane\": \"%s\", \"lane_digest\": \"%s\", \"isa\": \"%s\", \"commit\": \"%s\", "
          "\"base_tree\": \"%s\", \"patched_tree\": \"%s\", \"upstream_build\": %u, \"version\": \"%s\", \"backends\": [%s]}\n"
        : "dgr-shard-worker %s\nlane           %s\nlane digest    %s\nisa            %s\nupstream       %s\n"
          "base tree      %s\npatched tree   %s\nupstream build %u\nversion        %s\nbackends       %s\n";
    std::printf(format, dgr::WORKER_VERSION, facts.lane.c_str(), facts.lane_digest.c_str(), facts.isa.c_str(),
        facts.commit.c_str(), facts.base_tree.c_str(), facts.patched_tree.c_str(), facts.upstream_build,
        facts.upstream_version.c_str(), list.c_str());
}

void print_devices(bool json) {
    std::string list;
    for (const std::string & line : dgr::list_devices()) {
        list += json ? (list.empty() ? "\"" : ", \"") + line + "\"" : line + "\n";
    }
    std::fputs((json ? "[" + list + "]\n" : list).c_str(), stdout);
}

// Readers see no port file or a whole one.
bool write_port(const std::string & path, int port) {
    const std::string staged = path + ".staging-" + std::to_string(getpid());
    FILE * file = std::fopen(staged.c_str(), "w");
    if (file == nullptr) {
        return false;
    }
    const bool written = std::fprintf(file, "%d\n", port) > 0;
    const bool closed  = std::fclose(file) == 0;
    if (written && closed && std::rename(staged.c_str(), path.c_str()) == 0) {
        return true;
    }
    std::remove(staged.c_str());
    return false;
}

// Switches of upstream's that change bits and that no numerics digest would show.
void ignore_upstream_switches() {
    for (const char * name : {"LLAMA_ATTN_ROT_DISABLE", "GGML_CPU_DISABLE_FUSION", "GGML_CPU_TILED_MM", "GGML_CPU_TILED_MM_FORCE"}) {
        unsetenv(name);
    }
}

// Blocked before any thread exists, so that every thread inherits it and only the wait below sees the signals.
// Without certificates there is nothing to reload, and SIGHUP keeps what it means to a program on a terminal.
sigset_t block_signals(bool has_certificates) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (has_certificates) {
        sigaddset(&signals, SIGHUP);
        std::signal(SIGHUP, SIG_DFL);  // nohup ignores it, and what is ignored need not be delivered
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    return signals;
}

dgr::ServerOptions server_options(const dgr::Options & options) {
    const dgr::BuildFacts & facts = dgr::build_facts();
    dgr::ServerOptions server;
    server.listen               = options.listen;
    server.artifact_digest      = options.artifact_digest;
    server.mode                 = options.join ? dgr::Mode::throughput : dgr::Mode::exact;
    server.allowed_next         = dgr::AllowList(options.allow_next);
    server.insecure_plaintext   = options.insecure_plaintext;
    server.limits.lease         = std::chrono::milliseconds(static_cast<int64_t>(options.lease_seconds * 1000));
    server.build.lane           = facts.lane;
    server.build.lane_digest    = facts.lane_digest;
    server.build.commit         = facts.commit;
    server.build.base_tree      = facts.base_tree;
    server.build.patched_tree   = facts.patched_tree;
    server.build.upstream_build = facts.upstream_build;
    server.build.version        = dgr::WORKER_VERSION;
    return server;
}

// Whether a signal has come; it is not told again. SIGHUP means nothing any more.
bool signalled(const sigset_t & signals) {
    sigset_t pending;
    int signal = 0;
    sigpending(&pending);
    for (const int one : {SIGTERM, SIGINT}) {
        if (sigismember(&signals, one) != 0 && sigismember(&pending, one) != 0) {
            return sigwait(&signals, &signal) == 0;
        }
    }
    return false;
}

// Returns when the worker is told to stop.
void wait_for_stop(const sigset_t & signals, dgr::Certificates * certificates) {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
        if (signal != SIGHUP || certificates == nullptr) {
            return;
        }
        try {
            certificates->reload();
            log_event(LogLevel::info, "certificates_reloaded");
        } catch (const dgr::TlsError & error) {
            log_event(LogLevel::error, "certificates_kept", {{"error", error.what_failed + "; the old certificates stay"},
                {"cause", error.what()}, {"next", error.next_step + "; then send SIGHUP again"}});
        }
    }
}

std::unique_ptr<dgr::ShardEngine> load(const dgr::LlamaEngineParams & params) {
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<dgr::ShardEngine> engine = dgr::make_llama_engine(params);
    const dgr::EngineDescription & description = engine->describe();
    log_event(LogLevel::info, "loaded", {{"first", description.range.first}, {"last", description.range.last},
        {"bytes", description.own_tensor_bytes}, {"seconds", seconds_since(start)}});
    return engine;
}

int serve(const dgr::Options & options, const sigset_t & signals) {
    dgr::ServerOptions for_server = server_options(options);
    const auto certificates = options.tls.given() ? std::make_shared<dgr::Certificates>(options.tls) : nullptr;
    for_server.certificates = certificates;
    dgr::check_transport(for_server);  // before the model is loaded, which may take long
    if (!options.metrics_listen.empty()) {
        dgr::check_metrics_address(options.metrics_listen, options.metrics_beyond_loopback);
    }
    if (certificates && options.tls.client_ca.empty()) {
        log_event(LogLevel::warning, "clients_unchecked", {{"cause", "without --tls-client-ca everyone who reaches the port is served"}});
    }
    if (options.insecure_plaintext) {
        log_event(LogLevel::warning, "plaintext", {{"cause", "--insecure-plaintext: everyone on the way can read prompts and answers"}});
    }
    dgr::ShardServer server(load(options.engine), for_server);
    server.start();
    std::optional<dgr::MetricsServer> metrics;
    if (!options.metrics_listen.empty()) {
        metrics.emplace(options.metrics_listen, [&server] { return dgr::metrics_text(server.identity(), server.snapshot()); },
            options.metrics_beyond_loopback);
        log_event(LogLevel::info, "metrics_listening", {{"address", options.metrics_listen}, {"port", metrics->port()}});
    }
    log_event(LogLevel::info, "listening", {{"address", options.listen}, {"port", server.port()}, {"tls", certificates != nullptr}});
    if (!options.port_file.empty() && !write_port(options.port_file, server.port())) {
        return report(EXIT_USAGE, "cannot write " + options.port_file, "the folder is missing or not writable",
            "name another --port-file");
    }
    wait_for_stop(signals, certificates.get());
    log_event(LogLevel::info, "draining", {{"at_most_s", options.drain_seconds}});
    dgr::Drain how;
    how.sessions = std::chrono::milliseconds(static_cast<int64_t>(options.drain_seconds * 1000));
    how.call     = std::chrono::milliseconds(options.call_ms);
    how.hurry    = [&signals] { return signalled(signals); };
    if (!server.drain(how)) {
        log_event(LogLevel::warning, "call_left", {{"cause", "the call that runs does not end"}, {"waited_ms", options.call_ms}});
        std::_Exit(0);
    }
    return 0;
}

void say_start(const dgr::Options & options) {
    const dgr::BuildFacts & facts = dgr::build_facts();
    log_event(LogLevel::info, "start", {{"version", dgr::WORKER_VERSION}, {"lane", facts.lane}, {"lane_digest", facts.lane_digest},
        {"pid", getpid()}, {"model", options.engine.model_path}, {"first", options.engine.range.first}, {"last", options.engine.range.last}});
}

int start_error_code(dgr::StartError::Kind kind) {
    switch (kind) {
        case dgr::StartError::Kind::settings: return EXIT_USAGE;
        case dgr::StartError::Kind::artifact: return EXIT_ARTIFACT;
        default:                              return EXIT_WORKER;
    }
}

int serve_or_report(const dgr::Options & options, const sigset_t & signals) {
    try {
        return serve(options, signals);
    } catch (const dgr::StartError & error) {
        return report(start_error_code(error.kind), "cannot load " + options.engine.model_path, error.what(),
            "dgr-shard-worker --help shows the settings");
    } catch (const dgr::TlsError & error) {
        return report(EXIT_USAGE, error.what_failed, error.what(), error.next_step);
    } catch (const std::invalid_argument & error) {
        return report(EXIT_USAGE, "cannot serve on " + options.listen, error.what(),
            "dgr-shard-worker --help shows the settings; for TLS on trial: dgr-build certs dev FOLDER");
    } catch (const std::exception & error) {
        return report(EXIT_WORKER, "the worker failed", error.what(), "try again; if it stays, report it with these lines");
    }
}

}  // namespace

int main(int argc, char ** argv) {
    ignore_upstream_switches();
    int exit_code = -1;
    dgr::Options options = dgr::parse_options(argc, argv, exit_code);
    if (exit_code >= 0) {
        return exit_code;
    }
    if (options.show_version) {
        print_version(options.json);
        return 0;
    }
    if (options.list_devices) {
        print_devices(options.json);
        return 0;
    }
    options.engine.isa = dgr::build_facts().isa;
    const auto start = std::chrono::steady_clock::now();
    dgr::start_log(options.log);
    dgr::tell_grpc_errors();
    say_start(options);
    const int code = serve_or_report(options, block_signals(options.tls.given()));
    log_event(LogLevel::info, "end", {{"exit_code", code}, {"seconds", seconds_since(start)}});
    return code;
}

#include "options.h"

#include <CLI/CLI.hpp>

#include <map>

namespace dgr {

static const char * DESCRIPTION =
    "Owns main layers [first, last) of one GGUF model and serves them over gRPC.\n"
    "Example: dgr-shard-worker --model m.gguf --artifact-digest HEX --first 0 --last 21 --listen 127.0.0.1:7001";

static void add_engine_options(CLI::App & app, LlamaEngineParams & engine, SlotClass & slots, std::string & flash) {
    app.add_option("--model", engine.model_path, "GGUF file, or the first part of a split one");
    app.add_option("--first", engine.range.first, "First own main layer");
    app.add_option("--last", engine.range.last, "One past the last own main layer; 0 is the end of the model");
    app.add_option("--device", engine.device, "What computes, as --list-devices names it; auto is the build's own accelerator")->capture_default_str();
    app.add_option("--n-ctx", slots.n_ctx, "Positions a slot")->check(CLI::Range(1u, 1u << 24))->capture_default_str();
    app.add_option("--slots", slots.slots, "Sessions at once")->check(CLI::Range(1u, 256u))->capture_default_str();
    app.add_option("--n-ubatch", engine.n_ubatch, "Rows a frame at most")->check(CLI::Range(1u, 65536u))->capture_default_str();
    app.add_option("--threads", engine.n_threads, "Threads for frames of one row")->check(CLI::Range(1u, 512u))->capture_default_str();
    app.add_option("--threads-batch", engine.n_threads_batch, "Threads for longer frames")->check(CLI::Range(1u, 512u))->capture_default_str();
    app.add_option("--flash-attn", flash, "on or off; every stage of a route must agree")->check(CLI::IsMember({"on", "off"}))->capture_default_str();
    app.add_option("--type-k", engine.type_k, "ggml type of the K cache")->capture_default_str();
    app.add_option("--type-v", engine.type_v, "ggml type of the V cache")->capture_default_str();
    app.add_flag("!--no-mmap", engine.use_mmap, "Read the own weights into memory instead of mapping the file, as is always done for other devices than the CPU");
    app.add_flag("!--no-check-finite", engine.check_finite, "Let boundary values pass that are not finite or beyond 2^100");
}

static void add_transport_options(CLI::App & app, Options & options) {
    app.add_option("--listen", options.listen, "Address and port; port 0 takes a free one. Beyond loopback it needs TLS")->capture_default_str();
    app.add_option("--port-file", options.port_file, "Where to write the port once the worker serves");
    app.add_option("--tls-cert", options.tls.cert, "PEM file of this worker's certificate, then of those that signed it; read again on SIGHUP");
    app.add_option("--tls-key", options.tls.key, "PEM file of its private key");
    app.add_option("--tls-client-ca", options.tls.client_ca, "PEM file of the authority whose certificates clients must show");
    app.add_option("--tls-next-ca", options.tls.next_ca, "PEM file of the authority of the next stage; that of the clients by default");
    app.add_option("--allow-next", options.allow_next,
        "A next stage that clients may send this worker to: HOST[:PORT], *.NAME or a network such as 10.0.0.0/8; may be repeated; "
        "loopback by default")->allow_extra_args(false);
    app.add_flag("--insecure-plaintext", options.insecure_plaintext, "Listen and connect beyond loopback without TLS: everyone on the way can read");
}

static const std::map<std::string, LogFormat> LOG_FORMATS = {{"text", LogFormat::text}, {"json", LogFormat::json}};
static const std::map<std::string, LogLevel>  LOG_LEVELS  = {{"debug", LogLevel::debug}, {"info", LogLevel::info},
    {"warning", LogLevel::warning}, {"error", LogLevel::error}, {"off", LogLevel::off}};

Options parse_options(int argc, char ** argv, int & exit_code) {
    Options     options;
    SlotClass   slots{/*.slots =*/ 1, /*.n_ctx =*/ 512};
    std::string flash = "off";
    std::string mode  = "exact";
    std::string log_format = "text";
    std::string log_level  = "info";

    CLI::App app(DESCRIPTION, "dgr-shard-worker");
    add_engine_options(app, options.engine, slots, flash);
    app.add_option("--artifact-digest", options.artifact_digest, "SHA-256 of the artifact manifest, 64 hex digits");
    app.add_option("--mode", mode, "exact: a call computes one frame, and bits depend on nothing else; throughput: a call joins frames of several sessions")
        ->check(CLI::IsMember({"exact", "throughput"}))->capture_default_str();
    add_transport_options(app, options);
    app.add_option("--drain-seconds", options.drain_seconds, "How long open sessions may go on after SIGTERM; new ones are refused, and a second SIGTERM ends it")
        ->check(CLI::Range(0.0, 1e6))->capture_default_str();
    app.add_option("--drain-call-ms", options.call_ms, "How long the call that runs may then take to finish")->capture_default_str();
    app.add_option("--lease-seconds", options.lease_seconds, "How long a client may be silent before its session is dropped")
        ->check(CLI::Range(0.05, 1e6))->capture_default_str();
    app.add_option("--metrics-listen", options.metrics_listen, "Address and port where Prometheus finds /metrics; off by default");
    app.add_flag("--metrics-beyond-loopback", options.metrics_beyond_loopback, "Tell metrics to everyone who reaches the port");
    app.add_option("--log-format", log_format, "How events are told on stderr, one a line")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
    app.add_option("--log-level", log_level, "The least level that is told")
        ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))->capture_default_str();
    app.add_flag("--version", options.show_version, "Print what this worker was built from");
    app.add_flag("--list-devices", options.list_devices, "Print the devices that this build finds here");
    app.add_flag("--json", options.json, "With --version or --list-devices: as JSON");

    exit_code = -1;
    try {
        app.parse(argc, argv);
        if (!options.show_version && !options.list_devices && (options.engine.model_path.empty() || options.artifact_digest.empty())) {
            throw CLI::RequiredError("--model and --artifact-digest");
        }
        if (options.insecure_plaintext && options.tls.given()) {
            throw CLI::ValidationError("--insecure-plaintext", "says the opposite of --tls-cert; leave one of them out");
        }
    } catch (const CLI::ParseError & error) {
        exit_code = app.exit(error) == 0 ? 0 : 2;
    }
    if (exit_code < 0) {
        options.log = {LOG_FORMATS.at(log_format), LOG_LEVELS.at(log_level)};
    }
    options.join                = mode == "throughput";
    options.engine.flash_attn   = flash == "on";
    options.engine.slot_classes = {slots};
    return options;
}

}  // namespace dgr

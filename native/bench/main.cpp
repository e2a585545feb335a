// dgr-route-bench: measures workers from the client's side. Everything is printed as JSON, one object a line.
//
// Exit codes are those of the toolchain: 0 done, 2 usage, 10 worker or route failed.

#include "bench/bench-route.h"
#include "bench/delay-proxy.h"
#include "bench/echo.h"
#include "bench/frame-times.h"
#include "bench/session-times.h"
#include "bench/tcp.h"

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

using namespace dgr::bench;

namespace {

constexpr int EXIT_USAGE = 2;
constexpr int EXIT_ROUTE = 10;

struct Arguments {
    std::vector<std::string> stages;
    std::vector<std::string> targets;
    Shape       shape;
    uint32_t    repeat   = 1;
    uint32_t    rows     = 1;
    uint32_t    count    = 20;
    uint64_t    bytes    = 64;
    uint64_t    delay_us = 0;
    std::string address;
    std::string port_file;
};

void print_route(const BenchRoute & route) {
    std::string stages;
    for (const BenchStage & stage : route.stages) {
        const auto & about = stage.about;
        stages += (stages.empty() ? "" : ", ") + std::string("{\"first\": ") + std::to_string(about.range().first())
            + ", \"last\": " + std::to_string(about.range().last())
            + ", \"own_tensor_bytes\": " + std::to_string(about.own_tensor_bytes()) + "}";
    }
    std::printf("{\"event\": \"route\", \"n_ubatch\": %u, \"boundary_width\": %u, \"lane_digest\": \"%s\", \"stages\": [%s]}\n",
        route.n_ubatch(), route.head().about.boundary().width(), route.head().about.build().lane_digest().c_str(), stages.c_str());
}

void run(const Arguments & arguments) {
    const BenchRoute route(arguments.stages);
    print_route(route);
    for (uint32_t run = 0; run < arguments.repeat; ++run) {
        const RunTimes times = run_sessions(route, arguments.shape);
        for (size_t session = 0; session < times.sessions.size(); ++session) {
            const SessionTimes & one = times.sessions[session];
            std::printf("{\"event\": \"prefill\", \"run\": %u, \"session\": %zu, \"rows\": %u, \"frames\": %u, \"us\": %.1f}\n",
                run, session, arguments.shape.prefill_rows, one.frames, one.prefill_us);
            for (size_t i = 0; i < one.token_us.size(); ++i) {
                std::printf("{\"event\": \"token\", \"run\": %u, \"session\": %zu, \"index\": %zu, \"us\": %.1f, \"tail_us\": %llu}\n",
                    run, session, i, one.token_us[i], static_cast<unsigned long long>(one.tail_us[i]));
            }
        }
        std::printf("{\"event\": \"run\", \"run\": %u, \"sessions\": %zu, \"prefill_us\": %.1f, \"decode_us\": %.1f}\n",
            run, times.sessions.size(), times.prefill_us, times.decode_us);
        std::fflush(stdout);
    }
}

void describe(const Arguments & arguments) {
    const BenchStage stage = describe_stage(arguments.address);
    std::printf("{\"event\": \"stage\", \"first\": %u, \"last\": %u, \"own_tensor_bytes\": %llu}\n", stage.about.range().first(),
        stage.about.range().last(), static_cast<unsigned long long>(stage.about.own_tensor_bytes()));
}

void frames(const Arguments & arguments) {
    for (const FrameTime & time : time_frames(describe_stage(arguments.address), arguments.rows, arguments.count)) {
        std::printf("{\"event\": \"frame\", \"bytes\": %llu, \"us\": %.1f, \"compute_us\": %llu}\n",
            static_cast<unsigned long long>(time.bytes), time.us, static_cast<unsigned long long>(time.compute_us));
    }
}

void print_echoes(uint64_t bytes, const std::vector<double> & times) {
    for (const double us : times) {
        std::printf("{\"event\": \"echo\", \"bytes\": %llu, \"us\": %.1f}\n", static_cast<unsigned long long>(bytes), us);
    }
}

// Readers see no file or a whole one: one port a line.
void write_ports(const std::string & path, const std::vector<int> & ports) {
    const std::string staged = path + ".staging-" + std::to_string(getpid());
    FILE * file = std::fopen(staged.c_str(), "w");
    if (file == nullptr) {
        throw BenchError("cannot write " + path);
    }
    for (const int port : ports) {
        std::fprintf(file, "%d\n", port);
    }
    if (std::fclose(file) != 0 || std::rename(staged.c_str(), path.c_str()) != 0) {
        throw BenchError("cannot write " + path);
    }
}

void wait_for_end(const sigset_t & signals) {
    int signal = 0;
    sigwait(&signals, &signal);
}

void serve_echo(const Arguments & arguments, const sigset_t & signals) {
    const EchoServer server;
    write_ports(arguments.port_file, {server.port()});
    wait_for_end(signals);
}

// The last port is an echo behind the same delay: what the wire and this proxy take by themselves.
void serve_proxy(const Arguments & arguments, const sigset_t & signals) {
    const TcpEcho echo;
    std::vector<std::string> targets = arguments.targets;
    targets.push_back("127.0.0.1:" + std::to_string(echo.port()));
    std::vector<std::unique_ptr<DelayProxy>> proxies;
    std::vector<int> ports;
    for (const std::string & target : targets) {
        proxies.push_back(std::make_unique<DelayProxy>(target, std::chrono::microseconds(arguments.delay_us)));
        ports.push_back(proxies.back()->port());
    }
    write_ports(arguments.port_file, ports);
    wait_for_end(signals);
}

void add_commands(CLI::App & app, Arguments & arguments) {
    CLI::App & run = *app.add_subcommand("run", "Sessions beside each other on a route: a prompt each, then tokens");
    run.add_option("--stages", arguments.stages, "Addresses from head to tail, separated by commas")->delimiter(',')->required();
    run.add_option("--sessions", arguments.shape.sessions)->check(CLI::Range(1u, 256u))->capture_default_str();
    run.add_option("--prefill", arguments.shape.prefill_rows, "Rows of each prompt")->check(CLI::Range(1u, 1u << 24))->capture_default_str();
    run.add_option("--frame-rows", arguments.shape.frame_rows, "Rows a frame of the prompt; 0: as many as the stages take")->capture_default_str();
    run.add_option("--decode", arguments.shape.decode_tokens, "Tokens of each session")->capture_default_str();
    run.add_option("--repeat", arguments.repeat, "How often all of it runs")->check(CLI::Range(1u, 10000u))->capture_default_str();

    CLI::App & describe = *app.add_subcommand("describe", "What a stage owns");
    describe.add_option("--to", arguments.address, "Its address")->required();

    CLI::App & frames = *app.add_subcommand("frames", "Frames to a tail alone: time of each, and how much of it was computing");
    frames.add_option("--to", arguments.address, "Its address")->required();
    frames.add_option("--rows", arguments.rows)->check(CLI::Range(1u, 65536u))->capture_default_str();
    frames.add_option("--count", arguments.count)->check(CLI::Range(1u, 1000000u))->capture_default_str();

    for (const char * name : {"echo", "tcp-echo"}) {
        CLI::App & echo = *app.add_subcommand(name, "Messages to an echo and back");
        echo.add_option("--to", arguments.address, "Its address")->required();
        echo.add_option("--bytes", arguments.bytes)->check(CLI::Range(uint64_t(1), uint64_t(1) << 30))->capture_default_str();
        echo.add_option("--count", arguments.count)->check(CLI::Range(1u, 1000000u))->capture_default_str();
    }

    CLI::App & server = *app.add_subcommand("echo-server", "A bare gRPC echo, until it is ended");
    server.add_option("--port-file", arguments.port_file, "Where to write the port")->required();

    CLI::App & proxy = *app.add_subcommand("proxy", "Delays TCP connections, until it is ended");
    proxy.add_option("--to", arguments.targets, "Address of a target; can be repeated");
    proxy.add_option("--delay-us", arguments.delay_us, "One way, in microseconds")->check(CLI::Range(uint64_t(0), uint64_t(60000000)));
    proxy.add_option("--port-file", arguments.port_file, "Where to write the ports: of each target, then of an echo behind the same delay")
        ->required();
    app.require_subcommand(1);
}

}  // namespace

int main(int argc, char ** argv) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    Arguments arguments;
    CLI::App app("Measures shard workers from the client's side; prints JSON lines.", "dgr-route-bench");
    add_commands(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError & error) {
        return app.exit(error) == 0 ? 0 : EXIT_USAGE;
    }
    const std::string command = app.get_subcommands().front()->get_name();
    if (command == "echo-server" || command == "proxy") {
        pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists
    }
    try {
        if (command == "run") {
            run(arguments);
        } else if (command == "describe") {
            describe(arguments);
        } else if (command == "frames") {
            frames(arguments);
        } else if (command == "echo") {
            print_echoes(arguments.bytes, time_echo(arguments.address, arguments.bytes, arguments.count));
        } else if (command == "tcp-echo") {
            print_echoes(arguments.bytes, time_tcp_echo(arguments.address, arguments.bytes, arguments.count));
        } else if (command == "echo-server") {
            serve_echo(arguments, signals);
        } else {
            serve_proxy(arguments, signals);
        }
    } catch (const std::exception & error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return EXIT_ROUTE;
    }
    return 0;
}

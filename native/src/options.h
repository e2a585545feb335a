// The worker's command line.

#pragma once

#include "engine/llama-engine.h"
#include "log/event-log.h"
#include "rpc/tls-files.h"

#include <string>
#include <vector>

namespace dgr {

struct Options {
    LlamaEngineParams engine;
    std::string       artifact_digest;
    bool              join = false;  // frames of several sessions in one call
    std::string       listen = "127.0.0.1:0";
    std::string       port_file;
    TlsFiles          tls;
    std::vector<std::string> allow_next;
    bool              insecure_plaintext = false;
    double            drain_seconds = 10;
    uint32_t          call_ms = 10000;
    double            lease_seconds = 60;
    LogSettings       log;
    std::string       metrics_listen;  // empty: none
    bool              metrics_beyond_loopback = false;
    bool              show_version = false;
    bool              list_devices = false;
    bool              json         = false;
};

// Reads the command line. Prints help or a usage error itself and then sets exit_code; otherwise it is -1.
Options parse_options(int argc, char ** argv, int & exit_code);

}  // namespace dgr

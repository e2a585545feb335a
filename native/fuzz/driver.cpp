// Runs a fuzz target without libFuzzer, so that any compiler can: N inputs made from a seed, or the files named.
//
//     dgr-fuzz-TARGET -runs=N -seed=S [-start=K] [-max_len=L]
//     dgr-fuzz-TARGET FILE...
//
// When a run ends the process, its input is kept in the file that DGR_FUZZ_FINDING names, and the command that runs it
// again is printed.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

namespace {

// Of the run at hand, for the signal handler.
const uint8_t * now_data = nullptr;
size_t          now_size = 0;
char            now_command[512];

void say(const char * text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(1);
    }
}

void on_signal(int number) {
    say("FINDING in the run that this repeats: ");
    say(now_command);
    say("\n");
    const char * path = std::getenv("DGR_FUZZ_FINDING");
    const int file = path == nullptr ? -1 : open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (file >= 0) {
        if (write(file, now_data, now_size) >= 0) {
            say("its input is kept in ");
            say(path);
            say("\n");
        }
        close(file);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void run(const std::vector<uint8_t> & input, const std::string & command) {
    now_data = input.data();
    now_size = input.size();
    std::snprintf(now_command, sizeof(now_command), "%s", command.c_str());
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

std::vector<uint8_t> made(uint64_t seed, uint64_t number, size_t most) {
    std::mt19937_64 random(seed * 1000003 + number);
    std::vector<uint8_t> bytes(random() % (most + 1));
    for (uint8_t & byte : bytes) {
        byte = static_cast<uint8_t>(random());
    }
    return bytes;
}

}  // namespace

int main(int argc, char ** argv) {
    uint64_t runs = 1000;
    uint64_t seed = 1;
    uint64_t start = 0;
    uint64_t most = 512;
    std::vector<std::string> files;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto equals = word.find('=');
        const uint64_t value = equals == std::string::npos ? 0 : std::strtoull(word.c_str() + equals + 1, nullptr, 10);
        const std::string name = word.substr(0, equals);
        if (name == "-runs") {
            runs = value;
        } else if (name == "-seed") {
            seed = value;
        } else if (name == "-start") {
            start = value;
        } else if (name == "-max_len") {
            most = value;
        } else if (word[0] == '-') {
            std::fprintf(stderr, "unknown option %s\n", word.c_str());
            return 2;
        } else {
            files.push_back(word);
        }
    }
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        signal(number, on_signal);
    }
    const std::string program = argv[0];
    for (const std::string & name : files) {
        std::ifstream file(name, std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "cannot read %s\n", name.c_str());
            return 2;
        }
        run({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, program + " " + name);
    }
    for (uint64_t number = start; files.empty() && number < start + runs; ++number) {
        run(made(seed, number, most), program + " -runs=1 -seed=" + std::to_string(seed) + " -start=" + std::to_string(number)
            + " -max_len=" + std::to_string(most));
    }
    std::printf("%llu runs, no finding\n", static_cast<unsigned long long>(files.empty() ? runs : files.size()));
    return 0;
}

// A stage reads its own share of the file and little more (a cold file, through mmap and without).

#include "parity.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dgr::testing {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t SLACK       = uint64_t(16) << 20;
constexpr long     TMPFS_MAGIC = 0x01021994;

uint64_t io_counter(const std::string & name) {
    std::ifstream io("/proc/self/io");
    for (std::string key; io >> key;) {
        uint64_t value = 0;
        io >> value;
        if (key == name + ":") {
            return value;
        }
    }
    throw std::runtime_error("/proc/self/io has no " + name);
}

// A private copy of a model that the page cache does not hold, in the working folder: the model's own is read-only
// where a lane's tests run inside its environment.
class ColdCopy {
public:
    explicit ColdCopy(const std::string & model)
        : path(fs::path(model).filename().string() + ".cold-" + std::to_string(getpid())) {
        fs::copy_file(model, path, fs::copy_options::overwrite_existing);
        drop();
    }
    ~ColdCopy() { fs::remove(path); }
    ColdCopy(const ColdCopy &)             = delete;
    ColdCopy & operator=(const ColdCopy &) = delete;

    void drop() const {
        const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }

    bool on_tmpfs() const {
        struct statfs stats{};
        return statfs(path.c_str(), &stats) == 0 && stats.f_type == TMPFS_MAGIC;
    }

    std::string path;
};

struct Read {
    uint64_t bytes = 0;
    uint64_t own   = 0;
};

// Bytes read while the range is loaded and runs a frame.
Read load(const ColdCopy & file, const LayerRange & range, bool use_mmap) {
    LlamaEngineParams params = default_params(file.path);
    params.range             = range;
    params.use_mmap          = use_mmap;

    file.drop();
    const std::string counter = use_mmap ? "read_bytes" : "rchar";
    const uint64_t    before  = io_counter(counter);
    const auto        engine  = make_llama_engine(params);
    return { io_counter(counter) - before, engine->describe().own_tensor_bytes };
}

}  // namespace

class Load : public ::testing::TestWithParam<bool> {};

TEST_P(Load, ReadsTheOwnTensorsAndAtMost16MiBMore) {
    const ColdCopy file(tiny_v4());
    if (file.on_tmpfs()) {
        GTEST_SKIP() << file.path << " lies in memory: nothing is read from it";
    }
    const uint64_t size  = fs::file_size(file.path);
    const Read     whole = load(file, { 0, 0 }, GetParam());
    ASSERT_GE(whole.bytes, size * 9 / 10) << "the counter must see a whole load, or the test is blind";

    for (const LayerRange range : { LayerRange{ 0, 10 }, LayerRange{ 10, 20 }, LayerRange{ 33, 0 } }) {
        const Read part = load(file, range, GetParam());
        SCOPED_TRACE("from layer " + std::to_string(range.first));
        EXPECT_LE(part.bytes, part.own + SLACK);
        EXPECT_GE(part.bytes, part.own * 9 / 10);
        EXPECT_LT(part.own, size / 2);
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, Load, ::testing::Bool(),
                         [](const auto & info) { return info.param ? "Mmap" : "NoMmap"; });

}  // namespace dgr::testing

// A stage reads its own share of the file and little more (a cold file, through mmap and without).

#include "parity.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace dgr::testing {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t SLACK       = uint64_t(16) << 20;
constexpr long     TMPFS_MAGIC = 0x01021994;

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

    // What of it was read since: the pages that the page cache holds. The process's own counters would also tell of the
    // libraries and compiled shaders that a device's driver reads.
    uint64_t read_bytes() const {
        const int      fd   = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const uint64_t size = fs::file_size(path);
        const auto     page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        void *         view = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (view == MAP_FAILED) {
            throw std::runtime_error("cannot map " + path);
        }
        std::vector<unsigned char> pages((size + page - 1) / page);
        const int                  result = mincore(view, size, pages.data());
        munmap(view, size);
        if (result != 0) {
            throw std::runtime_error("the kernel does not tell which pages of " + path + " it holds");
        }
        return page * static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
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
    EXPECT_LE(file.read_bytes(), fs::file_size(file.path) / 100) << "the file must be cold, or the test is blind";
    const auto engine = make_llama_engine(params);
    return { file.read_bytes(), engine->describe().own_tensor_bytes };
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
    ASSERT_GE(whole.bytes, size * 9 / 10) << "a whole load must be seen, or the test is blind";

    for (const LayerRange range : { LayerRange{ 0, 10 }, LayerRange{ 10, 20 }, LayerRange{ 33, 0 } }) {
        const Read part = load(file, range, GetParam());
        SCOPED_TRACE("from layer " + std::to_string(range.first));
        EXPECT_LE(part.bytes, part.own + SLACK);
        EXPECT_GE(part.bytes, part.own * 9 / 10);
        EXPECT_LT(part.own, size / 2);
    }
}

// On another device than the CPU both are the same way.
INSTANTIATE_TEST_SUITE_P(Ways, Load, ::testing::Bool(),
                         [](const auto & info) { return info.param ? "Mmap" : "NoMmap"; });

}  // namespace dgr::testing

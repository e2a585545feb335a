#include "rpc/resident-memory.h"

#ifdef __APPLE__
#include <mach/mach.h>
#else
#include <fstream>
#include <unistd.h>
#endif

namespace dgr {

#ifdef __APPLE__
uint64_t resident_bytes() {
    mach_task_basic_info info{};
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    const kern_return_t got = task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
    return got == KERN_SUCCESS ? info.resident_size : 0;
}
#else
uint64_t resident_bytes() {
    uint64_t pages = 0, resident_pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident_pages;
    return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}
#endif

}  // namespace dgr

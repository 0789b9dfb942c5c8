#include "cli/memory_cap.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace pw {

namespace {

#ifdef PIPEWRIGHT_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Returns the pages of data and stack (proc(5)), which are slightly more than RLIMIT_DATA counts, or 0 if the system
// does not have the number.
Bytes data_of_process() {
    std::ifstream file("/proc/self/statm");
    Bytes pages = 0;
    for (int field = 0; field < 6; ++field)
        if (!(file >> pages))
            return 0;
    return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

MemoryCap::MemoryCap(Bytes bytes) {
    const Bytes now = data_of_process();
    if (kSanitized || now == 0 || getrlimit(RLIMIT_DATA, &before_) != 0)
        return;
    rlimit limit = before_;
    const Bytes most =
        now > std::numeric_limits<Bytes>::max() - bytes ? std::numeric_limits<Bytes>::max() : now + bytes;
    limit.rlim_cur = std::min({static_cast<rlim_t>(most), before_.rlim_cur, before_.rlim_max});
    is_set_ = setrlimit(RLIMIT_DATA, &limit) == 0;
}

MemoryCap::~MemoryCap() {
    if (is_set_)
        setrlimit(RLIMIT_DATA, &before_);
}

}  // namespace pw

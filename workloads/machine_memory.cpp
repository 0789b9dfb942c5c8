#include "workloads/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace pw {

namespace {

constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

Bytes of_system() {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? Bytes{pages} * page : kNoLimit;
}

// Returns the limit of the control group, of version 2 or of version 1; "max" is no number.
Bytes of_control_group() {
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        Bytes limit = 0;
        if (std::ifstream(path) >> limit && limit > 0)
            return limit;
    }
    return kNoLimit;
}

template <class Resource>
Bytes of_process(Resource resource) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return kNoLimit;
    return static_cast<Bytes>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kNoLimit)));
}

}  // namespace

Bytes memory_of_machine() {
    static const Bytes least =
        std::min({of_system(), of_control_group(), of_process(RLIMIT_AS), of_process(RLIMIT_DATA)});
    return least;
}

Bytes memory_for_plans() { return memory_of_machine() / 2; }

}  // namespace pw

#include "workloads/machine_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <sys/resource.h>
#include <unistd.h>

namespace pw {

namespace {

constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

Bytes of_system() {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? Bytes{pages} * page : kNoLimit;
}

// How a version of control groups spells things (cgroup-v2.rst, cgroup-v1/memory.rst of the Linux kernel).
struct GroupFiles {
    std::string_view controller;  // in /proc/self/cgroup
    std::string_view folder;      // in the root
    std::string_view limit, use;
    std::string_view caches[2];  // in memory.stat
};
constexpr GroupFiles kGroupFiles[] = {
    {"", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory",
     "memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

// "max" is no number.
std::optional<Bytes> number_in(const std::filesystem::path& file) {
    Bytes number = 0;
    return std::ifstream(file) >> number && number >= 0 ? std::optional(number) : std::nullopt;
}

Bytes caches_of(const std::filesystem::path& group, const GroupFiles& files) {
    std::ifstream stat(group / "memory.stat");
    Bytes caches = 0, bytes = 0;
    for (std::string name; stat >> name >> bytes;)
        if (name == files.caches[0] || name == files.caches[1])
            caches += bytes;
    return caches;
}

Bytes left_in_group(const std::filesystem::path& group, const GroupFiles& files) {
    const std::optional<Bytes> limit = number_in(group / files.limit), use = number_in(group / files.use);
    if (!limit || *limit == 0)
        return kNoLimit;
    return use ? std::max<Bytes>(*limit - std::max<Bytes>(*use - caches_of(group, files), 0), 0) : *limit;
}

// The groups of a path, "/a/b", "/a" and "/". In a container the path may be the path on the host. Then only the last
// group exists.
Bytes left_in_path(const std::filesystem::path& root, const std::filesystem::path& path, const GroupFiles& files) {
    Bytes left = kNoLimit;
    for (std::filesystem::path group = path;; group = group.parent_path()) {
        left = std::min(left, left_in_group(root / files.folder / group.relative_path(), files));
        if (!group.has_relative_path())
            return left;
    }
}

template <class Resource>
Bytes of_process(Resource resource) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return kNoLimit;
    return static_cast<Bytes>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kNoLimit)));
}

}  // namespace

Bytes memory_left_in_system(const std::string& facts) {
    std::ifstream file(facts);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        Bytes kibibytes = 0;
        if (words >> key >> kibibytes && key == "MemAvailable:")
            return kibibytes * 1024;
    }
    return of_system();
}

// Lines of `own` are "0::/path" (version 2) and "4:memory:/path".
Bytes memory_left_in_groups(const std::string& root, const std::string& own) {
    Bytes left = kNoLimit;
    std::ifstream groups(own);
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos)
            continue;
        const std::string_view controller = std::string_view(line).substr(first + 1, second - first - 1);
        for (const GroupFiles& files : kGroupFiles)
            if (controller == files.controller)
                left = std::min(left, left_in_path(root, line.substr(second + 1), files));
    }
    return left;
}

Bytes memory_of_machine() {
    static const Bytes least =
        std::min({memory_left_in_system("/proc/meminfo"), memory_left_in_groups("/sys/fs/cgroup", "/proc/self/cgroup"),
                  of_process(RLIMIT_AS), of_process(RLIMIT_DATA)});
    return least;
}

Bytes memory_for_plans() { return memory_of_machine() / 2; }

}  // namespace pw

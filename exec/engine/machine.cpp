#include "exec/engine/machine.h"

#include "workloads/error.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

namespace pw {

namespace {

struct TopologyDeleter {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

Topology load_topology() {
    setenv("HWLOC_HIDE_ERRORS", "2", 0);  // hwloc would print to stderr that it finds less without /sys
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0)
        return nullptr;
    Topology owned(topology);
    return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

// Loaded once, since it takes milliseconds and a machine does not change. Null if hwloc cannot load it.
hwloc_topology_t machine() {
    static const Topology topology = load_topology();
    return topology.get();
}

class Pages : public Memory {
public:
    Pages(Bytes bytes, const std::string& whose, bool touched) {
        const auto page = static_cast<std::size_t>(kHugePage);
        const auto size = (static_cast<std::size_t>(std::max<Bytes>(bytes, 1)) + page - 1) / page * page;
        size_ = static_cast<Bytes>(size);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? 0 : MAP_NORESERVE);
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED)
            fail_with(ExitCode::RunFailed, "{}: cannot reserve {}: {}", whose, print_bytes(size_),
                      std::strerror(errno));
        data_ = static_cast<std::byte*>(memory);
        if (!touched)
            return;
        (void)madvise(memory, size, MADV_HUGEPAGE);  // may fail: small pages work too
        std::memset(data_, 0, size);
    }
    ~Pages() override { munmap(data_, static_cast<std::size_t>(size_)); }
};

}  // namespace

std::vector<UsableCore> usable_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return {};
    std::vector<UsableCore> first, other;
    const hwloc_topology_t topology = machine();
    const int cores = topology != nullptr ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
    for (int number = 0; number < cores; ++number) {
        const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(number));
        bool taken = false;
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
            if (!CPU_ISSET(static_cast<std::size_t>(cpu), &allowed))
                continue;
            (taken ? other : first).push_back({cpu, hwloc_bitmap_first(core->nodeset)});
            taken = true;
        }
    }
    first.insert(first.end(), other.begin(), other.end());
    const auto is_known = [&](int cpu) {
        return std::any_of(first.begin(), first.end(), [&](const UsableCore& core) { return core.number == cpu; });
    };
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)  // cores that the topology does not have, as without /sys
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed) && !is_known(cpu))
            first.push_back({cpu});
    return first;
}

int numa_node_of(std::string address, const std::string& folder) {
    for (char& digit : address)
        digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
    int node = -1;
    std::ifstream(fmt::format("{}/{}/numa_node", folder, address)) >> node;
    return std::max(node, -1);
}

namespace {

bool pin(const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores)
        CPU_SET(static_cast<std::size_t>(core), &set);
    return cores.empty() || sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace

void pin_this_thread(const std::vector<int>& cores) { (void)pin(cores); }

bool can_pin_this_thread(const std::vector<int>& cores) {
    cpu_set_t now;
    CPU_ZERO(&now);
    if (sched_getaffinity(0, sizeof now, &now) != 0 || !pin(cores))
        return false;
    return sched_setaffinity(0, sizeof now, &now) == 0;
}

// A kernel has one clock per boot, but a container may have another origin of it.
std::string clock_name() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    std::error_code none;
    return boot + ' ' + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

void keep_freed_memory() {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
}

// The sum over all mappings is exact. The counters of /proc/self/statm are updated per thread with a delay.
Bytes resident_memory() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string word; file >> word;)
        if (Bytes kilobytes = 0; word == "Rss:" && file >> kilobytes)
            return kilobytes * 1024;
    return 0;
}

std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string& whose, bool touched) {
    return std::make_unique<Pages>(bytes, whose, touched);
}

std::string machine_name() {
    const hwloc_topology_t topology = machine();
    if (topology == nullptr)
        return "unknown";
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char* model = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
    return fmt::format("{}, {} cores", model == nullptr ? "unknown processor" : model,
                       hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
}

}  // namespace pw

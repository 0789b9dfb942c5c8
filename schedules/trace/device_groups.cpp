#include "schedules/trace/device_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace pw {

namespace {

// Return a name for the group of each device, or nothing if the groups are not known.
std::vector<std::string> by_host(const Trace& trace) {
    std::vector<std::string> names = trace.hosts;
    std::replace(names.begin(), names.end(), std::string(), std::string("host without a name"));
    return names;
}

std::vector<std::string> by_rank(const Trace& trace) {
    std::vector<int> ranks(static_cast<std::size_t>(trace.devices), 0);
    for (const TraceEvent& event : trace.events)
        ranks[static_cast<std::size_t>(event.device)] = event.rank;
    std::vector<std::string> names;
    for (const int rank : ranks)
        names.push_back(fmt::format("rank {}", rank));
    return names;
}

std::vector<std::string> by_replica(const Trace& trace) {
    std::vector<int> joined(static_cast<std::size_t>(trace.devices));
    std::iota(joined.begin(), joined.end(), 0);
    const auto first_of = [&](int device) {
        while (joined[static_cast<std::size_t>(device)] != device)
            device = joined[static_cast<std::size_t>(device)] =
                joined[static_cast<std::size_t>(joined[static_cast<std::size_t>(device)])];
        return device;
    };
    std::map<std::pair<int, int>, int> device_of;  // step, micro-batch
    for (const TraceEvent& event : trace.events) {
        if (!is_compute(event.task.op))
            continue;
        const auto [known, fresh] = device_of.try_emplace({event.step, event.task.microbatch}, event.device);
        const int a = first_of(known->second), b = first_of(event.device);
        joined[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
    }
    std::map<int, int> numbers;
    std::vector<std::string> names;
    for (int device = 0; device < trace.devices; ++device)
        names.push_back(fmt::format(
            "replica {}", numbers.try_emplace(first_of(device), static_cast<int>(numbers.size())).first->second));
    return names;
}

struct GroupKind {
    const char* kind;
    std::vector<std::string> (*names)(const Trace& trace);
};
constexpr GroupKind kGroupKinds[] = {{"host", by_host}, {"replica", by_replica}, {"rank", by_rank}};

DeviceGroups grouped(const Trace& trace, const GroupKind& kind) {
    DeviceGroups groups{kind.kind, {}, {}};
    const std::vector<std::string> names = kind.names(trace);
    if (std::ssize(names) != trace.devices)
        return groups;
    std::map<std::string, int> numbers;
    for (const std::string& name : names) {
        const auto [group, fresh] = numbers.try_emplace(name, static_cast<int>(numbers.size()));
        if (fresh)
            groups.names.push_back(name);
        groups.of.push_back(group->second);
    }
    return groups;
}

}  // namespace

DeviceGroups hosts_of_devices(const Trace& trace) { return grouped(trace, kGroupKinds[0]); }

std::vector<DeviceGroups> groups_of(const Trace& trace) {
    std::vector<DeviceGroups> all;
    for (const GroupKind& kind : kGroupKinds)
        if (DeviceGroups groups = grouped(trace, kind);
            groups.names.size() > 1 && groups.names.size() < groups.of.size())
            all.push_back(std::move(groups));
    return all;
}

}  // namespace pw

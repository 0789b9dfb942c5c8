// The keys that determine the devices: devices, hosts, devices_per_host, rank_table.
#include "job/config/blocks.h"
#include "job/config/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

namespace pw {
namespace {

constexpr KeyOf<DeviceConfig> kDeviceKeys[] = {
    {"name", text_key<&DeviceConfig::name>(), KeyShown::IfSet},
    {"speed", number_key<&DeviceConfig::speed>(1e-6, 1e6), KeyShown::IfSet},
    {"memory", size_key<&DeviceConfig::memory>(), KeyShown::IfSet},
    {"host", text_key<&DeviceConfig::host>(), KeyShown::IfSet},
};

void refuse_no_memory(const Yaml& at, Bytes memory) {
    if (at.present() && memory == 0)
        at.complain(fmt::format("'{}' is 0: nothing fits on a device without memory", at.path()),
                    "write the memory of a device, such as 16 GB, or remove the key");
}

// Reads the devices; none if the file does not have their number.
std::vector<DeviceConfig> read_list(const Yaml& devices, Bytes memory, KeyReading& reading) {
    std::vector<DeviceConfig> result;
    if (!devices.is_list()) {
        const std::int64_t count = devices.integer(devices.present() ? 1 : 0, 1, kMostDevices);
        result.resize(static_cast<std::size_t>(count));
        for (DeviceConfig& device : result)
            device.memory = memory;
        return result;
    }
    std::set<std::string> names;
    for (const Yaml& item : devices.items()) {
        DeviceConfig& device = result.emplace_back();
        device.memory = memory;
        read_keys<DeviceConfig>(kDeviceKeys, item, device, reading);
        refuse_no_memory(item["memory"], device.memory);
        if (!device.name.empty() && !names.insert(device.name).second)
            item["name"].complain(fmt::format("two devices are called '{}'", device.name), "give each its own name");
    }
    if (result.empty())
        devices.complain("'cluster.devices' is empty", "write a number of devices, or one entry per device");
    return result;
}

// The names of devices from a rank table are their ranks, and their hosts its servers; `devices` may add the rest.
void read_ranks(const Yaml& at, ClusterConfig& cluster) {
    std::error_code error;
    if (cluster.rank_table.empty())
        return;
    if (!std::filesystem::is_regular_file(cluster.rank_table, error)) {
        at["rank_table"].complain(fmt::format("there is no file '{}'", cluster.rank_table),
                                  "check the path, which starts at the folder of this file");
        return;
    }
    const std::vector<std::string> servers = read_rank_table(cluster.rank_table);
    std::vector<DeviceConfig>& devices = cluster.devices;
    if (devices.empty())
        devices.assign(servers.size(), {"", 1, cluster.memory, ""});
    if (devices.size() != servers.size()) {
        at["devices"].complain(
            fmt::format("'cluster.devices' is {}, but the rank table has {} devices", devices.size(), servers.size()),
            fmt::format("write {}, or remove the key", servers.size()));
        return;
    }
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        if (devices[rank].name.empty())
            devices[rank].name = fmt::format("rank {}", rank);
        if (!devices[rank].host.empty() && devices[rank].host != servers[rank])
            at["devices"].complain(fmt::format("device {} is on '{}', but the rank table puts rank {} on '{}'", rank,
                                               devices[rank].host, rank, servers[rank]),
                                   "remove the key host: the table has it");
        devices[rank].host = servers[rank];
    }
}

// Places equally many devices on each host, unless they have their own.
void read_hosts(const Yaml& at, ClusterConfig& cluster) {
    const Yaml hosts = at["hosts"], each = at["devices_per_host"];
    if (!hosts.present() && !each.present())
        return;
    if (!each.present() || (!hosts.present() && cluster.devices.empty())) {
        (hosts.present() ? hosts : each)
            .complain("'cluster.hosts' and 'cluster.devices_per_host' go together",
                      hosts.present() ? "write both" : "write both, or how many devices there are (cluster.devices)");
        return;
    }
    const std::int64_t on_each = each.integer(1, 1, kMostDevices);
    const std::int64_t count =
        hosts.present() ? hosts.integer(1, 1, kMostDevices) : (std::ssize(cluster.devices) + on_each - 1) / on_each;
    if (count * on_each > kMostDevices) {
        hosts.complain(fmt::format("{} hosts of {} devices are more than {} devices", count, on_each, kMostDevices),
                       "write fewer");
        return;
    }
    if (cluster.devices.empty())
        cluster.devices.assign(static_cast<std::size_t>(count * on_each), {"", 1, cluster.memory, ""});
    if (hosts.present() && std::ssize(cluster.devices) != count * on_each) {
        at["devices"].complain(fmt::format("'cluster.devices' is {}, but {} hosts of {} devices have {}",
                                           cluster.devices.size(), count, on_each, count * on_each),
                               "remove the key, or correct the hosts");
        return;
    }
    for (std::size_t device = 0; device < cluster.devices.size(); ++device)
        if (std::string& host = cluster.devices[device].host; host.empty())
            host = fmt::format("host {}", static_cast<std::int64_t>(device) / on_each);
        else
            each.complain(
                fmt::format("device {} has the host '{}', but 'cluster.devices_per_host' gives it another one", device,
                            host),
                "write one of them");
}

// Returns the number of devices of each host if the hosts are those that `devices_per_host` makes, in its order; else
// 0.
std::size_t devices_per_host(const std::vector<DeviceConfig>& devices) {
    const auto other = std::find_if(devices.begin(), devices.end(),
                                    [&](const DeviceConfig& device) { return device.host != devices.front().host; });
    const auto each = static_cast<std::size_t>(other - devices.begin());
    for (std::size_t device = 0; device < devices.size(); ++device)
        if (devices[device].host != fmt::format("host {}", device / each))
            return 0;
    return each;
}

}  // namespace

void read_devices(const Yaml& at, ClusterConfig& cluster, KeyReading& reading) {
    refuse_no_memory(at["memory"], cluster.memory);
    cluster.devices = read_list(at["devices"], cluster.memory, reading);
    read_ranks(at, cluster);
    read_hosts(at, cluster);
}

std::string device_schema() { return object_schema<DeviceConfig>(kDeviceKeys); }

// Names and hosts from a rank table are not printed.
PrintedDevices print_devices(const ClusterConfig& cluster) {
    std::vector<DeviceConfig> devices = cluster.devices;
    if (!cluster.rank_table.empty())
        for (std::size_t rank = 0; rank < devices.size(); ++rank) {
            devices[rank].host.clear();
            if (devices[rank].name == fmt::format("rank {}", rank))
                devices[rank].name.clear();
        }
    const bool all_limited = std::all_of(devices.begin(), devices.end(),
                                         [](const DeviceConfig& device) { return device.memory != kUnlimited; });
    DeviceConfig usual;
    usual.memory = devices.empty() || !all_limited ? kUnlimited : devices.front().memory;
    const std::size_t each = devices_per_host(devices);
    std::string lines;
    bool alike = true;
    for (DeviceConfig& device : devices) {
        if (each > 0)
            device.host.clear();
        const std::string own = print_map<DeviceConfig>(kDeviceKeys, device, usual);
        alike = alike && own == "{}";
        lines += fmt::format("\n    - {}", own);
    }
    const bool whole = each > 0 && devices.size() % each == 0;
    PrintedDevices printed;
    if (!alike)
        printed.devices = lines;
    else if (whole)
        printed.hosts = print_plain(devices.size() / each);
    else
        printed.devices = print_plain(devices.size());
    if (each > 0)
        printed.devices_per_host = print_plain(each);
    if (usual.memory != kUnlimited)
        printed.memory = exact_bytes(usual.memory);
    return printed;
}

}  // namespace pw

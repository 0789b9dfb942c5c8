// The keys that determine the devices: devices, hosts, devices_per_host, rank_table.
#include "job/config/blocks.h"
#include "job/config/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace pw {
namespace {

constexpr KeyOf<DeviceConfig> kDeviceKeys[] = {
    {"name", text_key<&DeviceConfig::name>(), KeyShown::IfSet},
    {"speed", number_key<&DeviceConfig::speed>(1e-6, 1e6), KeyShown::IfSet},
    {"memory", size_key<&DeviceConfig::memory>(), KeyShown::IfSet},
    {"host", text_key<&DeviceConfig::host>(), KeyShown::IfSet},
    {"device", text_key<&DeviceConfig::device>(), KeyShown::IfSet},
    {"profile", path_key<&DeviceConfig::profile>(), KeyShown::IfSet},
};

void refuse_no_memory(const Yaml& at, Bytes memory) {
    if (at.present() && memory == 0)
        at.complain(fmt::format("'{}' is 0: nothing fits on a device without memory", at.path()),
                    "write the memory of a device, such as 16 GB, or remove the key");
}

// Reads the devices. There are none if the file does not have their number.
std::vector<DeviceConfig> read_list(const Yaml& devices, const ClusterConfig& cluster, KeyReading& reading) {
    if (!devices.is_list()) {
        const std::int64_t count = devices.integer(devices.present() ? 1 : 0, 1, kMostDevices);
        return std::vector(static_cast<std::size_t>(count), usual_device(cluster));
    }
    std::vector<DeviceConfig> result;
    std::set<std::string> names;
    for (const Yaml& item : devices.items()) {
        DeviceConfig& device = result.emplace_back(usual_device(cluster));
        read_keys<DeviceConfig>(kDeviceKeys, item, device, reading);
        refuse_no_memory(item["memory"], device.memory);
        if (item["memory"].present())
            device.memory_of_kind = false;
        if (!device.name.empty() && !names.insert(device.name).second)
            item["name"].complain(fmt::format("two devices are called '{}'", device.name), "give each its own name");
    }
    if (result.empty())
        devices.complain("'cluster.devices' is empty", "write a number of devices, or one entry per device");
    return result;
}

// The names of devices from a rank table are their ranks, and their hosts its servers. `devices` may add the rest.
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
        devices.assign(servers.size(), usual_device(cluster));
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
        cluster.devices.assign(static_cast<std::size_t>(count * on_each), usual_device(cluster));
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

// Makes the devices of rows of hosts, or places the devices of the file on the named hosts. Returns the row of each
// device, and -1 for a host without a row.
std::vector<int> place_on_rows(const Yaml& at, const std::vector<HostConfig>& rows, ClusterConfig& cluster) {
    const std::vector<Yaml> items = at["hosts"].items();
    std::vector<int> row_of_device(cluster.devices.size(), -1);
    if (at["devices_per_host"].present())
        at["devices_per_host"].complain("the rows of 'cluster.hosts' have the devices of each host", "remove the key");
    const bool has_devices = !cluster.devices.empty();
    int host = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const HostConfig& own = rows[row];
        if (has_devices == own.name.empty() || has_devices == (own.devices > 0)) {
            items[row].complain(has_devices
                                    ? "the devices of the file name their hosts, and this row has no name, or a "
                                      "number of devices"
                                    : "this row of hosts has a name or no number of devices, and the file does "
                                      "not list devices",
                                "write count: and devices: in each row; or cluster.devices: as a list in which each "
                                "device has a host, and in each row its name");
            return row_of_device;
        }
        for (std::size_t device = 0; device < cluster.devices.size() && has_devices; ++device)
            if (cluster.devices[device].host == own.name)
                row_of_device[device] = static_cast<int>(row);
        if (has_devices) {
            if (std::ranges::find(row_of_device, static_cast<int>(row)) == row_of_device.end())
                items[row]["name"].complain(fmt::format("no device is on the host '{}'", own.name),
                                            "write the host of its devices (cluster.devices), or remove the row");
            continue;
        }
        if (std::int64_t{own.count} * own.devices + std::ssize(cluster.devices) > kMostDevices) {
            items[row].complain(fmt::format("these hosts have more than {} devices", kMostDevices), "write fewer");
            return row_of_device;
        }
        for (int count = 0; count < own.count; ++count, ++host)
            for (int k = 0; k < own.devices; ++k) {
                DeviceConfig& device = cluster.devices.emplace_back(usual_device(cluster));
                device.host = fmt::format("host {}", host);
                row_of_device.push_back(static_cast<int>(row));
            }
    }
    return row_of_device;
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
    cluster.devices = read_list(at["devices"], cluster, reading);
    read_ranks(at, cluster);
    std::vector<HostConfig> rows;
    std::vector<int> row_of_device(cluster.devices.size(), -1);
    if (at["hosts"].is_list()) {
        rows = read_host_rows(at["hosts"], reading);
        row_of_device = place_on_rows(at, rows, cluster);
    } else {
        read_hosts(at, cluster);
        row_of_device.resize(cluster.devices.size(), -1);
    }
    find_makes(at, cluster, rows, row_of_device);
}

DeviceConfig usual_device(const ClusterConfig& cluster) {
    DeviceConfig device;
    device.memory = cluster.memory;
    device.memory_of_kind = cluster.memory_of_kind;
    return device;
}

std::string device_schema() { return object_schema<DeviceConfig>(kDeviceKeys); }

namespace {

// The links of a host whose devices are of this make.
HostConfig row_of_links(const DeviceMake& make) {
    HostConfig row;
    if (make.own_inside)
        row.inside = make.link;
    if (make.own_between)
        row.between = make.between_hosts;
    row.adapters = make.adapters;
    return row;
}

HostConfig row_of(const DeviceConfig& device, const DeviceMake& make, const ClusterConfig& cluster) {
    HostConfig row = row_of_links(make);
    row.device = make.device == cluster.device ? "" : make.device;
    row.profile = make.profile == cluster.profile ? "" : make.profile;
    row.speed = device.speed;
    if (!device.memory_of_kind)
        row.memory = device.memory;
    return row;
}

// Hosts of equal devices that have no names of their own are printed by their number, other hosts by name, with a list
// of devices.
PrintedDevices print_unlike(const ClusterConfig& cluster) {
    const std::vector<DeviceConfig>& devices = cluster.devices;
    const auto are_alike = [&](const DeviceConfig& a, const DeviceConfig& b) {
        return a.make == b.make && a.speed == b.speed && a.memory == b.memory && a.memory_of_kind == b.memory_of_kind &&
               a.name.empty() && b.name.empty();
    };
    std::vector<HostConfig> rows;
    bool by_number = true;
    int hosts = 0;
    for (std::size_t first = 0, before = 0; first < devices.size(); ++hosts) {
        std::size_t end = first;
        for (; end < devices.size() && devices[end].host == devices[first].host; ++end)
            by_number = by_number && are_alike(devices[end], devices[first]);
        by_number = by_number && devices[first].host == fmt::format("host {}", hosts);
        HostConfig row = row_of(devices[first], cluster.makes[static_cast<std::size_t>(devices[first].make)], cluster);
        row.devices = static_cast<int>(end - first);
        if (first > 0 && are_alike(devices[before], devices[first]) && rows.back().devices == row.devices)
            ++rows.back().count;
        else
            rows.push_back(std::move(row));
        before = std::exchange(first, end);
    }
    std::string lines, of_devices;
    if (by_number) {
        for (const HostConfig& row : rows)
            lines += "\n    - " + print_host_row(row);
        return {"", lines, "", ""};
    }
    std::set<std::string> known;
    const bool of_kinds = cluster.memory_of_kind || std::ranges::any_of(devices, &DeviceConfig::memory_of_kind);
    for (const DeviceConfig& device : devices) {
        const DeviceMake& make = cluster.makes[static_cast<std::size_t>(device.make)];
        // A host may have devices of several kinds, but its links are the same for all.
        HostConfig row = row_of_links(make);
        row.name = device.host;
        if ((row.inside || row.between) && known.insert(device.host).second)
            lines += "\n    - " + print_host_row(row);
        DeviceConfig own = device, usual = usual_device(cluster);
        own.device = make.device == cluster.device ? "" : make.device;
        own.profile = make.profile == cluster.profile ? "" : make.profile;
        if (own.memory_of_kind)
            own.memory = usual.memory = kUnlimited;
        else if (of_kinds)
            usual.memory = 0;  // differs: the memory of each device is printed
        of_devices += "\n    - " + print_map<DeviceConfig>(kDeviceKeys, own, usual);
    }
    return {of_devices, lines, "", of_kinds ? "" : exact_bytes(cluster.memory)};
}

}  // namespace

// Names and hosts from a rank table are not printed.
PrintedDevices print_devices(const ClusterConfig& cluster) {
    if (!cluster.makes.empty())
        return print_unlike(cluster);
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

#include "job/config/blocks.h"
#include "job/config/other_names.h"
#include "job/config/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

namespace pw {
namespace {

// Reads the devices; there are none when the file does not say how many.
std::vector<DeviceConfig> read_devices(const Yaml& devices, Bytes memory) {
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
        item.allow({"name", "speed", "memory", "host"});
        DeviceConfig& device = result.emplace_back();
        device.name = item["name"].text();
        device.speed = item["speed"].number(1, 1e-6, 1e6);
        device.memory = item["memory"].bytes(memory);
        device.host = item["host"].text();
        if (!device.name.empty() && !names.insert(device.name).second)
            item["name"].complain(fmt::format("two devices are called '{}'", device.name), "give each its own name");
    }
    if (result.empty())
        devices.complain("'cluster.devices' is empty", "write a number of devices, or one entry per device");
    return result;
}

// Devices of a rank table are called by their ranks and stand on its servers; `devices` may say the rest.
void read_ranks(const Yaml& at, ClusterConfig& cluster) {
    std::error_code error;
    if (cluster.rank_table.empty())
        return;
    if (!std::filesystem::is_regular_file(cluster.rank_table, error)) {
        at["rank_table"].complain(fmt::format("there is no file '{}'", cluster.rank_table),
                                  "check the path; it starts at the folder of this file");
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

// Places devices on hosts, as many on each, unless they say theirs.
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
                fmt::format("device {} says its host, '{}', and 'cluster.devices_per_host' another", device, host),
                "write one of them");
}

void read_links(const Yaml& at, ClusterConfig& cluster) {
    const Yaml link = at["link"], inside = at["inside"], between = at["between"];
    if (link.present() && inside.present())
        inside.complain("'cluster.link' and 'cluster.inside' are both the link between devices of a host",
                        "write inside: and between:, or link: for all devices");
    const Yaml own = inside.present() ? inside : link;
    cluster.link_given = own.is_map() || own.is_text();
    if (own.present())
        cluster.link = read_link(own);
    if (!between.present())
        return;
    cluster.between_hosts = read_link(between);
    if (!cluster.link_given)
        between.complain("'cluster.between' needs the link inside a host",
                         "write inside: {bandwidth: .., latency: ..}");
    const auto nameless = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                                       [](const DeviceConfig& device) { return device.host.empty(); });
    if (nameless != cluster.devices.end() || cluster.devices.empty())
        between.complain(fmt::format("'cluster.between' is the link between hosts, and device {} says no host",
                                     nameless - cluster.devices.begin()),
                         "write hosts: and devices_per_host:, or the host of each device");
}

// `inside` is no link between hosts, unless every pair of devices on two hosts has its own.
void check_hosts_are_linked(const Yaml& at, const ClusterConfig& cluster) {
    std::map<std::string, std::size_t> devices_of;
    for (const DeviceConfig& device : cluster.devices)
        ++devices_of[device.host];
    if (!at["inside"].present() || at["between"].present() || devices_of.size() < 2)
        return;
    std::size_t apart = cluster.devices.size() * cluster.devices.size();
    for (const auto& [host, devices] : devices_of)
        apart -= devices * devices;
    const auto linked = std::count_if(cluster.links.begin(), cluster.links.end(), [&](const auto& pair) {
        return cluster.devices[pair.from].host != cluster.devices[pair.to].host;
    });
    if (apart != static_cast<std::size_t>(linked))
        at["inside"].complain(
            fmt::format("'cluster.inside' is the link inside a host, and nothing says what links the {} hosts",
                        devices_of.size()),
            "write between: too, or link: for all devices");
}

}  // namespace

ClusterConfig read_cluster(const Yaml& at, const std::string& folder) {
    at.allow({"devices", "memory", "hosts", "devices_per_host", "link", "inside", "between", "links", "shared",
              "switches", "dispatch", "dispatcher", "profile", "rank_table", "compute", "memory_bandwidth"},
             kOtherNames);
    ClusterConfig cluster;
    cluster.memory = at["memory"].bytes(kUnlimited);
    cluster.devices = read_devices(at["devices"], cluster.memory);
    cluster.profile = absolute_path(folder, at["profile"].text());
    cluster.rank_table = absolute_path(folder, at["rank_table"].text());
    if (at["dispatch"].present())
        cluster.dispatch = read_time(at["dispatch"], 0);
    cluster.dispatcher = at["dispatcher"].choice(cluster.dispatcher);
    read_ranks(at, cluster);
    read_hosts(at, cluster);
    read_links(at, cluster);
    read_network(at, cluster);
    check_hosts_are_linked(at, cluster);
    cluster.rates.flops = at["compute"].flops(cluster.rates.flops);
    cluster.rates.memory_bandwidth = at["memory_bandwidth"].bandwidth(cluster.rates.memory_bandwidth);
    return cluster;
}

}  // namespace pw

// Devices of several makes: the rows of `hosts`, and what devices of one make have in common.
#include "job/config/blocks.h"
#include "workloads/cluster/link_yaml.h"

#include <algorithm>
#include <map>
#include <set>

namespace pw {
namespace {

constexpr KeyOf<HostConfig> kHostKeys[] = {
    {"name", text_key<&HostConfig::name>(), KeyShown::IfSet},
    {"count", integer_key<&HostConfig::count>(1, kMostDevices), KeyShown::IfSet},
    {"devices", integer_key<&HostConfig::devices>(1, kMostDevices), KeyShown::IfSet},
    {"device", text_key<&HostConfig::device>(), KeyShown::IfSet},
    {"profile", path_key<&HostConfig::profile>(), KeyShown::IfSet},
    {"speed", number_key<&HostConfig::speed>(1e-6, 1e6), KeyShown::IfSet},
    {"memory", size_key<&HostConfig::memory>(), KeyShown::IfSet},
    {"inside",
     {special("", "%", link_schema), nullptr,
      [](const HostConfig& row) { return row.inside ? fmt::format("{{{}}}", print_link(*row.inside)) : ""; }},
     KeyShown::IfSet},
    {"between",
     {special("", "%", between_schema), nullptr,
      [](const HostConfig& row) { return row.between ? print_between(*row.between, row.adapters) : ""; }},
     KeyShown::IfSet},
};

// What the file says of a device, without the values of the cluster.
DeviceMake written_make(const DeviceConfig& device, const HostConfig* row) {
    DeviceMake make;
    make.device = device.device.empty() && row != nullptr ? row->device : device.device;
    make.profile = device.profile.empty() && row != nullptr ? row->profile : device.profile;
    if (row == nullptr)
        return make;
    make.own_inside = row->inside.has_value();
    make.own_between = row->between.has_value();
    make.link = row->inside.value_or(Link{});
    make.between_hosts = row->between;
    make.adapters = row->adapters;
    return make;
}

bool is_same(const DeviceMake& a, const DeviceMake& b) {
    return a.device == b.device && a.profile == b.profile && a.own_inside == b.own_inside && a.link == b.link &&
           a.between_hosts == b.between_hosts && a.adapters == b.adapters;
}

// The key that gives a device its kind.
Yaml kind_key(const Yaml& at, std::size_t device, int row) {
    if (at["devices"].is_list())
        if (const Yaml key = at["devices"].items()[device]["device"]; key.present())
            return key;
    return at["hosts"].items()[static_cast<std::size_t>(row)]["device"];
}

// The smallest host of each make, by its number of devices.
void count_on_hosts(ClusterConfig& cluster) {
    std::map<std::string, int> devices_on;
    for (const DeviceConfig& device : cluster.devices)
        ++devices_on[device.host];
    std::vector<char> seen(cluster.makes.size(), 0);
    for (const DeviceConfig& device : cluster.devices) {
        const auto make = static_cast<std::size_t>(device.make);
        const int on_host = devices_on[device.host];
        int& least = cluster.makes[make].per_host;
        least = seen[make] != 0 ? std::min(least, on_host) : on_host;
        seen[make] = 1;
    }
}

}  // namespace

std::vector<HostConfig> read_host_rows(const Yaml& hosts, KeyReading& reading) {
    std::vector<HostConfig> rows;
    std::set<std::string> names;
    for (const Yaml& item : hosts.items()) {
        HostConfig& row = rows.emplace_back();
        read_keys<HostConfig>(kHostKeys, item, row, reading);
        if (row.memory && *row.memory == 0)
            item["memory"].complain(fmt::format("'{}' is 0: nothing fits on a device without memory", item.path()),
                                    "write the memory of a device, such as 16 GB, or remove the key");
        if (item["inside"].present())
            row.inside = read_link(item["inside"]);
        if (item["between"].present())
            row.between = read_between(item["between"], row.adapters);
        if (!row.name.empty() && !names.insert(row.name).second)
            item["name"].complain(fmt::format("two rows are of the host '{}'", row.name), "write one row for a host");
    }
    if (rows.empty())
        hosts.complain("'cluster.hosts' is empty", "write a number of hosts, or a row for equal hosts");
    return rows;
}

std::string print_host_row(const HostConfig& row) { return print_map<HostConfig>(kHostKeys, row, HostConfig{}); }

std::string host_schema() { return object_schema<HostConfig>(kHostKeys); }

void find_makes(const Yaml& at, ClusterConfig& cluster, const std::vector<HostConfig>& rows,
                const std::vector<int>& row_of_device) {
    std::vector<DeviceMake> makes;
    const std::vector<Yaml> listed = at["devices"].is_list() ? at["devices"].items() : std::vector<Yaml>{};
    for (std::size_t number = 0; number < cluster.devices.size() && number < row_of_device.size(); ++number) {
        DeviceConfig& device = cluster.devices[number];
        const int of_row = row_of_device[number];
        const HostConfig* row = of_row < 0 ? nullptr : &rows[static_cast<std::size_t>(of_row)];
        DeviceMake written = written_make(device, row);
        const auto known =
            std::find_if(makes.begin(), makes.end(), [&](const DeviceMake& make) { return is_same(make, written); });
        device.make = static_cast<int>(known - makes.begin());
        if (known == makes.end()) {
            if (!written.device.empty())
                written.kind = read_kind_of(kind_key(at, number, of_row), written.device, cluster.device_kinds);
            makes.push_back(std::move(written));
        }
        const DeviceMake& make = makes[static_cast<std::size_t>(device.make)];
        if (row != nullptr)
            device.speed = device.speed == 1 ? row->speed : device.speed;
        if (number < listed.size() && listed[number]["memory"].present())
            continue;
        if (row != nullptr && row->memory) {
            device.memory = *row->memory;
            device.memory_of_kind = false;
        } else if (make.kind) {
            device.memory = make.kind->memory;
            device.memory_of_kind = true;
        }
    }
    const bool is_one = makes.size() < 2 && (makes.empty() || (makes[0].device.empty() && makes[0].profile.empty() &&
                                                               !makes[0].own_inside && !makes[0].own_between));
    if (is_one)
        return;
    if (cluster.device.empty()) {
        cluster.device = makes.front().device;
        cluster.kind = makes.front().kind;
    }
    for (DeviceMake& make : makes) {
        if (make.device.empty()) {
            make.device = cluster.device;
            make.kind = cluster.kind;
        }
        if (make.profile.empty())
            make.profile = cluster.profile;
    }
    cluster.makes = std::move(makes);
    count_on_hosts(cluster);
}

void complete_makes(const Yaml& at, ClusterConfig& cluster) {
    const bool has_link = at["inside"].present() || at["link"].present();
    for (DeviceMake& make : cluster.makes) {
        make.link_given = make.own_inside || has_link || make.kind.has_value() || cluster.link_given;
        if (!make.own_inside)
            make.link = make.kind && !has_link ? make.kind->link : cluster.link;
        if (!make.own_between) {
            make.between_hosts = cluster.between_hosts;
            make.adapters = cluster.adapters;
        }
    }
    const auto has_between = [](const DeviceMake& make) { return make.between_hosts.has_value(); };
    if (std::ranges::any_of(cluster.makes, has_between) && !std::ranges::all_of(cluster.makes, has_between))
        at["hosts"].complain("some hosts have a link between hosts (between:) and others have none",
                             "write cluster.between:, which holds for hosts that have none of their own");
}

}  // namespace pw

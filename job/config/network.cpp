// What messages cost: links, and the capacities that they share.
#include "job/config/blocks.h"
#include "workloads/cluster/link_yaml.h"
#include "workloads/cluster/named_links.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace pw {
namespace {

std::optional<int> number_from(const std::string& text) {
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Reads one of the names, or its position among them; -1 after a mistake. If names are numbers, `names_first` decides
// which meaning is tried first.
int read_one_of(const Yaml& at, const std::vector<std::string>& names, const char* what, bool names_first) {
    const std::string text = at.text();
    const auto named = std::find(names.begin(), names.end(), text);
    const std::optional<int> number = number_from(text);
    const bool numbered = number && *number >= 0 && *number < std::ssize(names);
    if (named != names.end() && !text.empty() && (names_first || !numbered))
        return static_cast<int>(named - names.begin());
    if (numbered)
        return *number;
    std::vector<std::string_view> candidates;
    for (const std::string& name : names)
        if (!name.empty())
            candidates.push_back(name);
    const std::optional<std::string_view> meant = nearest(text, candidates);
    at.complain(fmt::format("there is no {} '{}'", what, text),
                meant ? fmt::format("did you mean '{}'?", *meant)
                      : fmt::format("write a name, or a number from 0 to {}", std::ssize(names) - 1));
    return -1;
}

std::vector<int> read_all_of(const Yaml& at, const std::vector<std::string>& names, const char* what,
                             bool names_first) {
    std::set<int> all;
    for (const Yaml& item : at.items())
        if (const int one = read_one_of(item, names, what, names_first); one >= 0 && !all.insert(one).second)
            item.complain(fmt::format("{} '{}' is listed twice in '{}'", what, item.text(), at.path()),
                          "leave one of them out");
    if (at.is_list() && at.items().empty())
        at.complain(fmt::format("'{}' is empty", at.path()), fmt::format("name a {} or more", what));
    return {all.begin(), all.end()};
}

constexpr std::string_view kNamesSchema = R"({"$ref": "#/$defs/names"})";

// The readers below read all keys of such a row together.
constexpr KeyOf<Link> kLinkKeys[] = {
    {"bandwidth", bandwidth_key<&Link::bandwidth>()},
    {"latency", time_key<&Link::latency>()},
    {"half_size", size_key<&Link::half_size>()},
    {"bandwidths", {special("", R"({"type": "array", "minItems": 1, "items": {"type": "object",
        "properties": {"bytes": {"$ref": "#/$defs/size"}, "bandwidth": {"$ref": "#/$defs/bandwidth"}},
        "required": ["bytes", "bandwidth"], "additionalProperties": false}})")}},
};
constexpr KeyDomain kOneDevice = special("", R"({"$ref": "#/$defs/name"})");
constexpr KeyOf<ClusterConfig::PairLink> kPairKeys[] = {{"from", {kOneDevice}}, {"to", {kOneDevice}}};
constexpr KeyOf<ClusterConfig::Shared> kSharedKeys[] = {
    {"devices", {special("", kNamesSchema)}},
    {"bandwidth", bandwidth_key<&ClusterConfig::Shared::bandwidth>()},
};
constexpr KeyOf<ClusterConfig::Switch> kSwitchKeys[] = {
    {"hosts", {special("", kNamesSchema)}},
    {"bandwidth", bandwidth_key<&ClusterConfig::Switch::bandwidth>()},
};

// Returns false and notes a mistake if one of the keys is missing.
template <class Owner>
bool has_all(const Yaml& item, std::span<const KeyOf<Owner>> keys) {
    bool all = true;
    for (const std::string_view key : names_of_keys(keys))
        if (!item[key].present()) {
            item.complain(fmt::format("'{}' has no {}", item.path(), key), fmt::format("write {}: ..", key));
            all = false;
        }
    return all;
}

void read_pairs(const Yaml& at, const std::vector<std::string>& devices, ClusterConfig& cluster) {
    std::set<std::pair<int, int>> pairs;
    for (const Yaml& item : at.items()) {
        const Link link = read_link(item, names_of_keys<ClusterConfig::PairLink>(kPairKeys));
        if (!has_all<ClusterConfig::PairLink>(item, kPairKeys))
            continue;
        const int from = read_one_of(item["from"], devices, "device", false);
        const int to = read_one_of(item["to"], devices, "device", false);
        if (from < 0 || to < 0)
            continue;
        if (from == to)
            item["to"].complain(fmt::format("'{}' leads from device {} to itself", item.path(), from),
                                "name two devices");
        else if (!pairs.insert({from, to}).second)
            item.complain(fmt::format("the link from device {} to device {} is listed twice", from, to),
                          "leave one of them out");
        else
            cluster.links.push_back({from, to, link});
    }
}

void read_shared(const Yaml& at, const std::vector<std::string>& devices, ClusterConfig& cluster) {
    for (const Yaml& item : at.items()) {
        item.allow(names_of_keys<ClusterConfig::Shared>(kSharedKeys));
        if (!has_all<ClusterConfig::Shared>(item, kSharedKeys))
            continue;
        const std::vector<int> members = read_all_of(item["devices"], devices, "device", false);
        const double bandwidth = item["bandwidth"].bandwidth(1);
        if (std::any_of(cluster.shared.begin(), cluster.shared.end(),
                        [&](const ClusterConfig::Shared& other) { return other.devices == members; }))
            item.complain("these devices share two bandwidths", "leave one of them out: the smaller one limits both");
        else if (!members.empty())
            cluster.shared.push_back({members, bandwidth});
    }
}

// Groups of hosts must be nested or have no host in common.
bool contradict(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const auto both = static_cast<std::size_t>(std::count_if(
        a.begin(), a.end(), [&](const std::string& host) { return std::find(b.begin(), b.end(), host) != b.end(); }));
    return both > 0 && (both < std::min(a.size(), b.size()) || a.size() == b.size());
}

void read_switches(const Yaml& at, const std::vector<std::string>& hosts, ClusterConfig& cluster) {
    for (const Yaml& item : at.items()) {
        item.allow(names_of_keys<ClusterConfig::Switch>(kSwitchKeys));
        if (!has_all<ClusterConfig::Switch>(item, kSwitchKeys))
            continue;
        ClusterConfig::Switch group{{}, item["bandwidth"].bandwidth(1)};
        for (const int host : read_all_of(item["hosts"], hosts, "host", true))
            group.hosts.push_back(hosts[static_cast<std::size_t>(host)]);
        if (group.hosts.empty())
            continue;
        const auto other =
            std::find_if(cluster.switches.begin(), cluster.switches.end(),
                         [&](const ClusterConfig::Switch& one) { return contradict(one.hosts, group.hosts); });
        if (group.hosts.size() == hosts.size())
            item["hosts"].complain(
                fmt::format("all {} hosts are below '{}', so no message leaves it", hosts.size(), item.path()),
                "name the hosts of one switch, or leave it out");
        else if (other != cluster.switches.end())
            item["hosts"].complain(
                fmt::format("'{}' and 'cluster.switches[{}]' have {} hosts", item.path(),
                            other - cluster.switches.begin(), other->hosts == group.hosts ? "the same" : "common"),
                "name each host below one switch, or all hosts of a switch below the next one, too");
        else
            cluster.switches.push_back(std::move(group));
    }
}

std::vector<std::string> hosts_of(const ClusterConfig& cluster) {
    std::vector<std::string> hosts;  // in the order of their first devices
    std::set<std::string> known;
    for (const DeviceConfig& device : cluster.devices)
        if (known.insert(device.host).second)
            hosts.push_back(device.host);
    return hosts;
}

}  // namespace

Link read_link(const Yaml& at, std::vector<std::string_view> further) {
    if (at.is_text() && further.empty())
        return read_named_link(at);
    const std::vector<std::string_view> own = names_of_keys<Link>(kLinkKeys);
    further.insert(further.end(), own.begin(), own.end());
    at.allow(further);
    Link link{read_time(at["latency"], 0), at["bandwidth"].bandwidth(Link{}.bandwidth)};
    read_sizes(at, link);
    return link;
}

Link read_between(const Yaml& at, int& adapters) {
    const Yaml named = at["link"], number = at["adapters"];
    if (number.present())
        adapters = static_cast<int>(number.integer(1, 1, kMostAdapters));
    if (named.present()) {
        at.allow({"link", "adapters"});
        return read_link(named);
    }
    return number.present() ? read_link(at, {"adapters"}) : read_link(at);
}

std::string print_between(const Link& between, int adapters) {
    return fmt::format("{{{}{}}}", print_link(between), adapters == 1 ? "" : fmt::format(", adapters: {}", adapters));
}

void read_network(const Yaml& at, ClusterConfig& cluster) {
    const Yaml links = at["links"], shared = at["shared"], switches = at["switches"];
    for (const Yaml& key : {links, shared})
        if (key.present() && cluster.devices.empty()) {
            key.complain(fmt::format("'{}' names devices, but their number is not given", key.path()),
                         "write cluster.devices, or hosts: and devices_per_host:");
            return;
        }
    std::vector<std::string> devices;
    for (const DeviceConfig& device : cluster.devices)
        devices.push_back(device.name);
    if (links.present())
        read_pairs(links, devices, cluster);
    if (shared.present())
        read_shared(shared, devices, cluster);
    if (!switches.present())
        return;
    const std::vector<std::string> hosts = hosts_of(cluster);
    if (hosts.empty() || std::any_of(hosts.begin(), hosts.end(), [](const std::string& host) { return host.empty(); }))
        return switches.complain("'cluster.switches' names hosts, but not every device has a host",
                                 "write hosts: and devices_per_host:, or the host of each device");
    read_switches(switches, hosts, cluster);
}

std::string link_schema() {
    std::vector<std::string> names;
    for (const NamedLink& one : kNamedLinks)
        names.push_back(fmt::format(R"("{}")", one.name));
    return fmt::format(R"({{"anyOf": [{{"enum": [{}]}}, {}]}})", fmt::join(names, ", "),
                       object_schema<Link>(kLinkKeys));
}

std::string between_schema() {
    const std::string link = link_schema();
    constexpr std::string_view kAdapters = R"("adapters": {"type": "integer", "minimum": 1, "maximum": %})";
    std::string adapters(kAdapters);
    adapters.replace(adapters.find('%'), 1, std::to_string(kMostAdapters));
    return fmt::format(R"({{"anyOf": [{}, {{"type": "object", "properties": {{{}, {}}}, "additionalProperties": false}},
        {{"type": "object", "properties": {{"link": {}, {}}}, "required": ["link"], "additionalProperties": false}}]}})",
                       link, properties_schema<Link>(kLinkKeys), adapters, link, adapters);
}

std::string pair_schema() {
    return fmt::format(R"({{"type": "object", "properties": {{{}, {}}}, "required": ["from", "to"],
        "additionalProperties": false}})",
                       properties_schema<ClusterConfig::PairLink>(kPairKeys), properties_schema<Link>(kLinkKeys));
}

std::string shared_schema() { return object_schema<ClusterConfig::Shared>(kSharedKeys); }

std::string switch_schema() { return object_schema<ClusterConfig::Switch>(kSwitchKeys); }

std::string print_pairs(const ClusterConfig& cluster) {
    std::string lines;
    for (const ClusterConfig::PairLink& pair : cluster.links)
        lines += fmt::format("\n    - {{from: {}, to: {}, {}}}", pair.from, pair.to, print_link(pair.link));
    return lines;
}

std::string print_shared(const ClusterConfig& cluster) {
    std::string lines;
    for (const ClusterConfig::Shared& shared : cluster.shared)
        lines += fmt::format("\n    - {{devices: {}, bandwidth: {}}}", print_items(shared.devices),
                             exact_bandwidth(shared.bandwidth));
    return lines;
}

std::string print_switches(const ClusterConfig& cluster) {
    std::string lines;
    for (const ClusterConfig::Switch& group : cluster.switches)
        lines += fmt::format("\n    - {{hosts: {}, bandwidth: {}}}", print_list(group.hosts, quoted),
                             exact_bandwidth(group.bandwidth));
    return lines;
}

}  // namespace pw

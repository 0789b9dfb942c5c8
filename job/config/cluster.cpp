// The block `cluster`.
#include "job/config/blocks.h"
#include "workloads/cluster/link_yaml.h"
#include "workloads/size_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace pw {
namespace {

void read_links(const Yaml& at, ClusterConfig& cluster) {
    const Yaml link = at["link"], inside = at["inside"], between = at["between"];
    if (link.present() && inside.present())
        inside.complain("'cluster.link' and 'cluster.inside' are both the link between devices of a host",
                        "write inside: and between:, or link: for all devices");
    const Yaml own = inside.present() ? inside : link;
    cluster.link_given = own.is_map() || own.is_text();
    if (own.present()) {
        cluster.link = read_link(own);
    } else if (cluster.kind && cluster.profile.empty()) {  // a profile has the measured link
        cluster.link = cluster.kind->link;
        cluster.link_given = cluster.link_of_kind = true;
    }
    if (at["host_link"].present())
        cluster.host_link = read_link(at["host_link"]);
    if (!between.present())
        return;
    cluster.between_hosts = read_between(between, cluster.adapters);
    const bool is_unknown_kind = !cluster.device.empty() && !cluster.kind;  // a mistake already noted
    if (!cluster.link_given && !is_unknown_kind)
        between.complain("'cluster.between' needs the link inside a host",
                         "write inside: {bandwidth: .., latency: ..}");
    const auto nameless = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                                       [](const DeviceConfig& device) { return device.host.empty(); });
    if (nameless != cluster.devices.end() || cluster.devices.empty())
        between.complain(fmt::format("'cluster.between' is the link between hosts, but device {} has no host",
                                     nameless - cluster.devices.begin()),
                         "write hosts: and devices_per_host:, or the host of each device");
}

// `inside` does not connect hosts, unless every pair of devices on two hosts has its own link.
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
            fmt::format("'cluster.inside' is the link inside a host, but the {} hosts have no link", devices_of.size()),
            "write between: too, or link: for all devices");
}

// "H100 SXM" and "h100-sxm-80" begin alike.
std::string letters_and_digits(std::string_view name) {
    std::string plain;
    for (const char c : name)
        if (std::isalnum(static_cast<unsigned char>(c)))
            plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return plain;
}

// Returns the kinds whose names begin so, else the kind whose name is nearest, if one is near.
std::vector<std::string_view> kinds_like(std::string_view name, const std::vector<DeviceKindFacts>& kinds) {
    const std::string wanted = letters_and_digits(name);
    std::vector<std::string_view> alike, names;
    for (const DeviceKindFacts& kind : kinds) {
        names.push_back(kind.name);
        if (!wanted.empty() && letters_and_digits(kind.name).starts_with(wanted))
            alike.push_back(kind.name);
    }
    if (!alike.empty())
        return alike;
    const std::optional<std::string_view> meant = nearest(name, names);
    return meant ? std::vector{*meant} : std::vector<std::string_view>{};
}

}  // namespace

std::optional<DeviceKindFacts> read_kind_of(const Yaml& key, const std::string& name, const std::string& file) {
    const std::vector<DeviceKindFacts> kinds = device_kinds(file);
    if (const DeviceKindFacts* kind = find_device_kind(kinds, name))
        return *kind;
    const std::vector<std::string_view> meant = kinds_like(name, kinds);
    key.complain(fmt::format("'{}' is '{}', which is no kind of device", key.path(), name),
                 meant.empty() ? "`pipewright list devices` names them; cluster.device_kinds may name a file of yours"
                               : fmt::format("did you mean {}?", fmt::join(meant, " or ")));
    return std::nullopt;
}

namespace {

// Finds the kind of the devices. Devices without memory or links of their own in the file take them from the kind.
void read_kind(const Yaml& at, ClusterConfig& cluster) {
    if (std::error_code error;
        !cluster.device_kinds.empty() && !std::filesystem::is_regular_file(cluster.device_kinds, error)) {
        at["device_kinds"].complain(fmt::format("there is no file '{}'", cluster.device_kinds),
                                    "check the path, which starts at the folder of this file");
        return;
    }
    if (!cluster.device.empty())
        cluster.kind = read_kind_of(at["device"], cluster.device, cluster.device_kinds);
    cluster.memory_of_kind = cluster.kind && !at["memory"].present();
    if (cluster.memory_of_kind)
        cluster.memory = cluster.kind->memory;
}

void check_kinds_are_named(const Yaml& at, const ClusterConfig& cluster) {
    if (cluster.device.empty() && !cluster.device_kinds.empty())
        at["device_kinds"].complain("'cluster.device_kinds' has kinds of devices, but no device is of a named kind",
                                    "write cluster.device, or remove the key");
}

// A file that is not there is an error of what needs its products: `profile --gemm` may be about to write it.
void read_measured_products(ClusterConfig& cluster) {
    if (std::error_code error; !std::filesystem::is_regular_file(cluster.products, error))
        return;
    for (ProductTable& table : read_products(cluster.products))
        cluster.measured_products.push_back(
            std::make_shared<const ProductRates>(ProductRates{.table = std::move(table)}));
}

constexpr auto kCluster = &Config::cluster;

// The rates are printed if costs are computed from them, unless a named kind has them.
std::string print_compute(const Config& config) {
    const double rate = config.cluster.rates.flops;
    if (const std::optional<ProductRate> own = rate_of_kind(config); own && own->flops == rate)
        return "";
    return has_analytic_costs(config) || rate != DeviceRates{}.flops ? exact_flops(rate) : "";
}

std::string print_memory_bandwidth(const Config& config) {
    const double rate = config.cluster.rates.memory_bandwidth;
    if (const std::optional<DeviceKindFacts>& kind = config.cluster.kind; kind && kind->memory_bandwidth == rate)
        return "";
    return has_analytic_costs(config) || rate != DeviceRates{}.memory_bandwidth ? exact_bandwidth(rate) : "";
}

// With several makes, a link that follows from a kind is not printed: each kind has its link.
std::string print_own_link(const Config& config) {
    const bool is_of_kind = !config.cluster.makes.empty() && config.cluster.link_of_kind;
    return config.cluster.link_given && !is_of_kind ? fmt::format("{{{}}}", print_link(config.cluster.link)) : "";
}

std::string print_link_of_all(const Config& config) {
    return config.cluster.between_hosts ? "" : print_own_link(config);
}

std::string print_inside(const Config& config) { return config.cluster.between_hosts ? print_own_link(config) : ""; }

std::string print_host_link(const Config& config) {
    const std::optional<Link>& link = config.cluster.host_link;
    return link ? fmt::format("{{{}}}", print_link(*link)) : "";
}

std::string print_between(const Config& config) {
    const std::optional<Link>& between = config.cluster.between_hosts;
    return between ? print_between(*between, config.cluster.adapters) : "";
}

template <std::string PrintedDevices::*member>
std::string print_some(const Config& config) {
    return print_devices(config.cluster).*member;
}

// The part of the memory of a kind of devices that a program can use follows only if the file has no memory of its own.
std::string print_memory(const Config& config) {
    const std::vector<DeviceConfig>& devices = config.parallel.ranks->devices;
    const bool is_of_kind = is_transformer(config) && !devices.empty() && devices.front().memory_of_kind;
    return is_of_kind ? "" : print_some<&PrintedDevices::memory>(config);
}

template <std::string (*print)(const ClusterConfig&)>
std::string print_of_cluster(const Config& config) {
    return print(config.cluster);
}

constexpr std::string_view kLinkText = "`{bandwidth, latency}`, a name";
constexpr std::string_view kListSchema = R"({"type": "array", "items": %})";
constexpr KeyDomain kCount{.kind = KeyKind::Integer, .least = 1, .most = kMostDevices};

// finish_cluster() reads the keys about devices and links together.
constexpr ConfigKey kClusterKeys[] = {
    {"devices",
     {special("a number, `[{name, speed, memory, host}, …]`",
              R"({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000000},
                {"type": "array", "minItems": 1, "items": %}]})",
              device_schema),
      nullptr, print_some<&PrintedDevices::devices>},
     KeyShown::Always,
     "as many as stages, or as their replicas",
     "their number, or an entry for each"},
    {"hosts",
     {special("a number, `[{count, devices, device, speed, memory, inside, between, profile}, …]`",
              R"({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000000},
                {"type": "array", "minItems": 1, "items": %}]})",
              host_schema),
      nullptr, print_some<&PrintedDevices::hosts>},
     KeyShown::Always,
     "none",
     "the number of hosts, with `devices_per_host` devices each, in order, or a list of hosts that differ (see "
     "[unlike devices](#unlike-devices))"},
    {"devices_per_host",
     {kCount, nullptr, print_some<&PrintedDevices::devices_per_host>},
     KeyShown::Always,
     "none",
     "with `devices` instead of `hosts`: as many hosts as the devices fill"},
    {"device", text_key<kCluster, &ClusterConfig::device>(), KeyShown::IfSet, "none",
     "the kind of all devices, a name of `pipewright list devices`. The kind sets `memory`, `compute` (in "
     "`training.precision`), `memory_bandwidth` and the link inside a host where the file does not have these keys, "
     "see [devices by name](#devices-by-name)"},
    {"domain", if_given(integer_key<kCluster, &ClusterConfig::domain>(1, kMostDevices)), KeyShown::IfSet,
     "`devices_per_host`", "transformers: the devices that `inside` connects, in several hosts"},
    {"device_kinds", path_key<kCluster, &ClusterConfig::device_kinds>(), KeyShown::IfSet, "none",
     "file with kinds of devices of your own"},
    {"memory", printed_as(size_key<kCluster, &ClusterConfig::memory>(), print_memory), KeyShown::Always, "`inf`",
     "memory of every device that has no `memory` of its own"},
    {"link",
     {special(kLinkText, "%", link_schema), nullptr, print_link_of_all},
     KeyShown::Always,
     "none: no cost",
     "the link between any two devices, see [hosts](#hosts) and [bandwidths by size](#bandwidth-by-size). Without a "
     "value the bandwidth is `inf` and the latency 0 ns"},
    {"inside",
     {special(kLinkText, "%", link_schema), nullptr, print_inside},
     KeyShown::Always,
     "none",
     "the link inside a host, see [hosts](#hosts). With several hosts `inside` needs `between`, unless `links` has "
     "every pair of devices on two hosts"},
    {"between",
     {special("`{bandwidth, latency, adapters}`, `{link, adapters}`, a name", "%", between_schema), nullptr,
      print_between},
     KeyShown::Always,
     "none",
     "the link between hosts through one adapter, see [hosts](#hosts). Every host has `adapters` adapters (default 1)"},
    {"host_link",
     {special(kLinkText, "%", link_schema), nullptr, print_host_link},
     KeyShown::IfSet,
     "the profile's",
     "the link of every device to the memory of its host, in each direction, for copies of `pipeline.offload` and "
     "`pipeline.offload_states`"},
    {"links",
     {special("`[{from, to, bandwidth, latency}, …]`", kListSchema, pair_schema), nullptr,
      print_of_cluster<print_pairs>},
     KeyShown::Always,
     "none",
     "pairs of devices with a link of their own, see [the network](#the-network)"},
    {"shared",
     {special("`[{devices, bandwidth}, …]`", kListSchema, shared_schema), nullptr, print_of_cluster<print_shared>},
     KeyShown::Always,
     "none",
     "what the messages of some devices share, see [the network](#the-network)"},
    {"switches",
     {special("`[{hosts, bandwidth}, …]`", kListSchema, switch_schema), nullptr, print_of_cluster<print_switches>},
     KeyShown::Always,
     "none",
     "what the messages of some hosts share, see [the network](#the-network)"},
    {"dispatch", time_key<kCluster, &ClusterConfig::dispatch>(), KeyShown::Always, "the profile's, else 0 ns",
     "what every task that computes takes in addition to its work: launching kernels, waiting for the host"},
    {"dispatcher", choice_key<kCluster, &ClusterConfig::dispatcher>(), KeyShown::IfSet, "",
     "`per host`: a single dispatcher issues the calls of all devices of a host, see [a shared "
     "dispatcher](#a-shared-dispatcher). Not for transformers"},
    {"rank_table", path_key<kCluster, &ClusterConfig::rank_table>(), KeyShown::IfSet, "none",
     "file with the devices of an Ascend cluster, see below"},
    {"profile", path_key<kCluster, &ClusterConfig::profile>(), KeyShown::IfSet, "none",
     "measured costs, see [profile.md](profile.md)", kNotOfTransformers},
    {"products", path_key<kCluster, &ClusterConfig::products>(), KeyShown::IfSet, "none",
     "file with [products measured by shape](profile.md#products-by-shape) on these devices, instead of the products "
     "of `device`: for linear layers of analytic costs, and transformers"},
    {"compute", printed_as(rate_key<kCluster, &ClusterConfig::rates, &DeviceRates::flops>(), print_compute),
     KeyShown::Always, "", "for analytic costs"},
    {"memory_bandwidth",
     printed_as(bandwidth_key<kCluster, &ClusterConfig::rates, &DeviceRates::memory_bandwidth>(),
                print_memory_bandwidth),
     KeyShown::Always, "", "for analytic costs"},
};

constexpr const char* kTimesOfLayers = "give the workload as layers with times (a layer graph), or as model: uniform";

void refuse_keys_of_other_workloads(const Yaml& at, const Config& config) {
    for (const ConfigKey& key : kClusterKeys)
        if (!key.is_for(config) && at[key.name].present())
            at[key.name].complain(fmt::format("'{}' is for {}, and '{}' is a transformer", at[key.name].path(),
                                              key.limit.words(key.name), config.workload.model),
                                  fmt::format("remove the key, or {}", kTimesOfLayers));
}

// Programs that train transformers start a process for every rank (parallel.release).
void refuse_dispatcher_of_ranks(const Yaml& at, const Config& config) {
    if (is_transformer(config) && config.cluster.dispatcher == ClusterConfig::Dispatcher::PerHost)
        at["dispatcher"].complain(
            fmt::format("'{}' is 'per host', and every rank of '{}' has a process of its own, which launches its own "
                        "kernels",
                        at["dispatcher"].path(), config.workload.model),
            fmt::format("remove the key: launches of kernels count for each rank, and {}.dispatch adds to every task. "
                        "For one controller, {}",
                        at.path(), kTimesOfLayers));
}

void finish_cluster(const Yaml& at, Config& config, KeyReading& reading) {
    ClusterConfig& cluster = config.cluster;
    read_kind(at, cluster);
    read_measured_products(cluster);
    read_devices(at, cluster, reading);
    check_kinds_are_named(at, cluster);
    read_links(at, cluster);
    complete_makes(at, cluster);
    read_network(at, cluster);
    check_hosts_are_linked(at, cluster);
    refuse_keys_of_other_workloads(at, config);
    refuse_dispatcher_of_ranks(at, config);
}

}  // namespace

ConfigBlock cluster_block() { return {"cluster", kClusterKeys, finish_cluster}; }

}  // namespace pw

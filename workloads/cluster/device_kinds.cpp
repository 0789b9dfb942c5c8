#include "workloads/cluster/device_kinds.h"

#include "workloads/cluster/device_kinds_text.h"
#include "workloads/cluster/link_yaml.h"
#include "workloads/text/embedded.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

constexpr std::string_view kRateNames[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};

RatesByPrecision read_rates(const Yaml& at) {
    at.allow({std::begin(kRateNames), std::end(kRateNames)});
    RatesByPrecision rates;
    for (const auto& [name, rate] : at.is_map() ? at.entries() : std::vector<std::pair<std::string, Yaml>>{})
        rates[name] = rate.flops(1);
    return rates;
}

Link read_link_of_kind(const Yaml& at) {
    if (at.is_text())
        return read_named_link(at);
    at.allow({"bandwidth", "latency", "half_size", "bandwidths"});
    Link link{at["latency"].time(0), at["bandwidth"].bandwidth(Link{}.bandwidth)};
    read_sizes(at, link);
    return link;
}

void require(const Yaml& at, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys)
        if (!at[key].present())
            at.complain(fmt::format("'{}' has no {}", at.path(), key), fmt::format("write {}: ..", key));
}

DeviceKindFacts read_kind(const std::string& name, const Yaml& at) {
    at.allow({"peak", "best", "memory", "memory_bandwidth", "power", "link", "products", "source"});
    require(at, {"peak", "memory", "memory_bandwidth", "link", "source"});
    DeviceKindFacts kind{.name = name,
                         .peak = read_rates(at["peak"]),
                         .best = read_rates(at["best"]),
                         .memory = at["memory"].bytes(1),
                         .memory_bandwidth = at["memory_bandwidth"].bandwidth(1),
                         .power = at["power"].number(0, 0, 1e6),
                         .link = read_link_of_kind(at["link"]),
                         .products = at["products"].text(),
                         .source = at["source"].text()};
    for (const auto& [precision, rate] : kind.best)
        if (const auto peak = kind.peak.find(precision); peak == kind.peak.end() || peak->second < rate)
            at["best"][precision].complain(
                fmt::format("'{}' is {}, more than the peak", at["best"][precision].path(), exact_flops(rate)),
                "correct one of them");
    return kind;
}

void add_kinds(const Yaml& root, std::vector<DeviceKindFacts>& kinds) {
    root.allow({"devices"});
    require(root, {"devices"});
    for (const auto& [name, at] :
         root["devices"].present() ? root["devices"].entries() : std::vector<std::pair<std::string, Yaml>>{}) {
        DeviceKindFacts kind = read_kind(name, at);
        const auto same = std::find_if(kinds.begin(), kinds.end(),
                                       [&](const DeviceKindFacts& other) { return other.name == kind.name; });
        if (same == kinds.end())
            kinds.push_back(std::move(kind));
        else
            *same = std::move(kind);
    }
    root.source().throw_if_mistaken();
}

}  // namespace

std::string_view rate_name(Precision precision) {
    return precision == Precision::Mxfp8 ? "fp8" : precision == Precision::Nvfp4 ? "fp4" : name_of(precision);
}

std::optional<ProductRate> product_rate(const DeviceKindFacts& kind, Precision precision) {
    const std::string_view name = rate_name(precision);
    if (const auto best = kind.best.find(name); best != kind.best.end())
        return ProductRate{best->second, true};
    if (const auto peak = kind.peak.find(name); peak != kind.peak.end())
        return ProductRate{peak->second, false};
    // Matrix units of all devices with bf16 compute in fp16 at the same rate.
    return precision == Precision::Fp16 ? product_rate(kind, Precision::Bf16) : std::nullopt;
}

const std::vector<DeviceKindFacts>& device_kinds() {
    static const std::vector<DeviceKindFacts> of_build = [] {
        std::vector<DeviceKindFacts> kinds;
        add_kinds(parse_embedded("the kinds of devices of this build", kDeviceKindsText), kinds);
        return kinds;
    }();
    return of_build;
}

std::vector<DeviceKindFacts> device_kinds(const std::string& file) {
    std::vector<DeviceKindFacts> kinds = device_kinds();
    if (!file.empty())
        add_kinds(Yaml::load(file), kinds);
    return kinds;
}

const DeviceKindFacts* find_device_kind(const std::vector<DeviceKindFacts>& kinds, std::string_view name) {
    const auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const DeviceKindFacts& kind) { return kind.name == name; });
    return found == kinds.end() ? nullptr : &*found;
}

}  // namespace pw

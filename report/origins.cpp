#include "report/origins.h"

#include "job/cost_source.h"
#include "schedules/passes/passes.h"
#include "workloads/size_text.h"
#include "workloads/units.h"

#include <fmt/format.h>

#include <cmath>

namespace pw {

namespace {

// "cluster.compute", or that it is the default.
std::string origin_of(const Setup& setup, const char* key) {
    return setup.places.contains(key) ? key : fmt::format("default of {}", key);
}

// "150 GFLOP/s (default of cluster.compute)".
std::string rates_text(const Setup& setup) {
    const DeviceRates& rates = setup.cluster.rates;
    const auto origin = [&](const char* key) {
        const bool of_kind = setup.cluster.kind && !setup.places.contains(key);
        return of_kind ? fmt::format("cluster.device {}", setup.cluster.device) : origin_of(setup, key);
    };
    return fmt::format("{} ({}), {} of memory ({})", exact_flops(rates.flops), origin("cluster.compute"),
                       exact_bandwidth(rates.memory_bandwidth), origin("cluster.memory_bandwidth"));
}

std::string passes_text(const Job& job, const Setup& setup) {
    switch (job.source) {
        case CostSource::Uniform:
            return "times of stages in the block workload";
        case CostSource::Shapes:
            return fmt::format("shapes of products and messages at {}", rates_text(setup));
        case CostSource::File:
            return fmt::format("times in the file workload.model, {}", setup.workload.model);
        case CostSource::Measured:
            return fmt::format(
                "measured on {} with backend {}{}", job.profile.machine, job.profile.backend,
                setup.cluster.profile.empty() ? "" : fmt::format(" (cluster.profile, {})", setup.cluster.profile));
        case CostSource::Analytic:
            return fmt::format("FLOPs and bytes of layers at {}", rates_text(setup));
    }
    return "";
}

std::string link_text(const Link& link) {
    return std::isinf(link.bandwidth) && link.latency == 0
               ? "free"
               : fmt::format("{} and {}", exact_bandwidth(link.bandwidth), print_time(link.latency));
}

std::string messages_text(const Job& job) {
    const Cluster& cluster = *job.costs.cluster;
    std::string text = link_text(cluster.link);
    if (cluster.between_hosts)
        text += fmt::format(" within a host, {} between hosts", link_text(*cluster.between_hosts));
    const bool measured = !job.setup.cluster.link_given && job.source == CostSource::Measured;
    return fmt::format("{} ({})", text,
                       measured                       ? "measured by the profile"
                       : job.setup.cluster.link_given ? "cluster"
                                                      : "default: no cluster.link");
}

std::string memory_text(const Setup& setup) {
    const std::vector<DeviceConfig>& devices = setup.cluster.devices;
    if (devices.empty() || devices.front().memory == kUnlimited)
        return "unlimited (default of cluster.memory)";
    for (const DeviceConfig& device : devices)
        if (device.memory != devices.front().memory)
            return "by device (cluster.devices)";
    return fmt::format("{} per device ({})", print_bytes_as(devices.front().memory, devices.front().memory),
                       setup.places.contains("cluster.memory") ? "cluster.memory" : "cluster");
}

}  // namespace

std::vector<std::string> origins_of_costs(const Job& job) { return origins_of_costs(job, job.setup); }

std::vector<std::string> origins_of_costs(const Job& job, const Setup& setup) {
    const KeptBytes kept = kept_of(setup);
    const std::string types =
        keeps_blocks(setup)
            ? ""
            : fmt::format("; of a parameter {} B of weights, {} of gradients, {} of master weights, {} of states",
                          kept.weight, kept.gradient, kept.master, kept.states);
    return {fmt::format("passes: {}", passes_text(job, setup)), fmt::format("messages: {}", messages_text(job)),
            fmt::format("memory: {}", memory_text(setup)),
            fmt::format("precision: {} ({}), optimizer: {} ({}){}", name_of(setup.training.precision),
                        origin_of(setup, "training.precision"), name_of(setup.training.optimizer),
                        origin_of(setup, "training.optimizer"), types)};
}

std::string proof_text(const Job& job) {
    std::size_t tasks = 0;
    for (const Tasks& order : job.plan.order)
        tasks += order.size();
    const TransferMode& mode = job.proof ? job.proof->mode : job.mode;
    return fmt::format(
        "no deadlock: the {} tasks of the plan have an order in which each follows all that it waits for (transfer: "
        "communicator {}, receive {}, protocol {}, exchange {})",
        tasks, name_of(mode.communicator), name_of(mode.receive), name_of(mode.protocol), name_of(mode.exchange));
}

}  // namespace pw

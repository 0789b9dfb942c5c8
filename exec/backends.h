// The backends and transports of this build: their names and status, kernels, and costs of messages.
#pragma once

#include "exec/kernels.h"
#include "job/setup/setup.h"
#include "workloads/cluster/link.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns the nearest NUMA node of each of `devices` devices of `run.backend`, or -1 if it is not known. The list
// is empty if the devices are the cores themselves.
std::vector<int> numa_nodes(const Setup& setup, int devices);
// Returns the function that opens the kernels of `devices` devices of `run.backend`. Throws Error (RunFailed) if this
// build or this machine does not have them.
OpenDevice open_kernels(const Setup& setup, int devices);

struct BackendRow {
    std::string_view name;
    std::string_view summary;
    std::string status;  // "ready", or the reason why it is not: "not installed", "no NVIDIA driver"
};
// Both load the module of the backend cuda for its status.
std::vector<BackendRow> backends();
std::vector<BackendRow> transports();
// The names of the backends that need no module.
std::vector<std::string_view> built_in_backends();

// The cost of messages between devices on the backend and transport of `setup`.
struct TransferCost {
    Link link;  // as in Profile, these three
    std::optional<Link> between_hosts = {};
    Link sums;
    bool sent_copies = false;  // whether the sender keeps a copy
};
TransferCost measure_transfer_cost(const Setup& setup);

}  // namespace pw

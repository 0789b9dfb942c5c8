// The ranks of a cluster that train a transformer, and the devices of the plan, each of which stands for the ranks that
// have its stages.
#pragma once

#include "job/setup/setup.h"

#include <cstdint>
#include <vector>

namespace pw {

// Sets the ranks of a transformer: all devices of its cluster, as the file has them.
void set_ranks(std::vector<DeviceConfig> devices, ParallelConfig& parallel);

// Gives the plan the devices of one replica, and its part of the samples of a step as micro-batches. The product of
// tensor, pipeline and context divides the devices of the cluster.
void divide_among_replicas(Setup& setup, std::int64_t samples);

// Returns whether the file has more of the network than the links of hosts: links of pairs, or what messages share.
bool has_own_network(const ClusterConfig& cluster);

// Puts a transformer on these hosts of its cluster, by number, in this order.
void choose_hosts(Setup& setup, const std::vector<int>& hosts);

}  // namespace pw

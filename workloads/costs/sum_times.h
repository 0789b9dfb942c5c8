// The capacities that the messages of a sum take, and the time of the sum alone.
#pragma once

#include "workloads/cluster/cluster.h"
#include "workloads/cluster/fair_shares.h"
#include "workloads/costs/sums.h"

#include <vector>

namespace pw {

const Link& sum_link_of(const SumRound::Pair& pair, const Cluster& cluster);
int adapters_of(const SumRound::Pair& pair, const Cluster& cluster);  // adapters of the pair, 1 inside a host
// Returns the capacities that a message of `bytes` takes, in bytes per second.
Demand demand_of_sum(const SumRound::Pair& pair, double bytes, const Cluster& cluster);

// Returns a sum with its time if nothing else is under way: its messages may share capacities with each other.
StageSum sum_among(const std::vector<int>& devices, Bytes bytes, const Cluster& cluster, SumAlgorithm algorithm);
// Returns the same of any rounds.
StageSum timed_sum(std::vector<SumRound> rounds, Bytes bytes, const Cluster& cluster);

}  // namespace pw

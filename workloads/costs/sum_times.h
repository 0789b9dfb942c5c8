// What the messages of a sum take, and how long it is by itself.
#pragma once

#include "workloads/cluster/cluster.h"
#include "workloads/cluster/fair_shares.h"
#include "workloads/costs/sums.h"

#include <vector>

namespace pw {

const Link& sum_link_of(const SumRound::Pair& pair, const Cluster& cluster);
// Returns what a message of so many bytes takes, in bytes per second.
Demand demand_of_sum(const SumRound::Pair& pair, double bytes, const Cluster& cluster);

// Returns a sum with the time that it takes by itself: its messages may share what they take with each other.
StageSum sum_among(const std::vector<int>& devices, Bytes bytes, const Cluster& cluster, SumAlgorithm algorithm);
// Returns the same of any rounds.
StageSum timed_sum(std::vector<SumRound> rounds, Bytes bytes, const Cluster& cluster);

}  // namespace pw

// Builds what a setup names: model, data set, profile, split, cluster and costs. All functions throw Error (BadInput)
// at the key whose value cannot be used.
#pragma once

#include "job/setup/setup.h"
#include "schedules/plan/plan.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Builds the model that the setup names (not for `uniform`, nor for instances that only `search` takes).
Model build_model(const Setup& setup);
// Marks the layers of the model that pipeline.recompute_layers and workload.frozen name. build_model() has done so.
void mark_layers(const Setup& setup, Model& model);
// Marks the layers that pipeline.recompute_layers names.
void mark_recomputed(const Setup& setup, Model& model);
// Sets which layers of the offloaded stages are offloaded.
void mark_offloaded(const Setup& setup, const StageSplit& split, Model& model);
// Makes the split of the setup; `auto` uses `profile`.
StageSplit make_split(const Setup& setup, const Model& model, const Profile& profile);
// Returns the layers before which a split that is made for the setup may cut.
CutPlaces places_of_cuts(const Setup& setup, const LayerGraph& graph);
// Sets which gradients of a tensor with several readers are summed first, by run.fan_out_gradients. A new split sums
// them by stages.
void group_readers(StageSplit& split, const RunConfig& run);
// Returns the profile of the setup's cost source (cost_source.h).
Profile profile_of(const Setup& setup, const Model& model);
// Returns the profile with the dispatch of the setup, if the setup has one. Throws if the profile has a separate link
// between hosts and the setup does not say which devices share a host.
Profile in_cluster(Profile profile, const Setup& setup);
// Gives every device its host, and the hosts their dispatchers. Returns the hosts' numbers by name. Devices without a
// host name share a host.
std::map<std::string, int> place_on_hosts(ClusterFacts& facts, const ClusterConfig& cluster);
// Adds links of pairs, and what messages share, to facts with hosts. `hosts` has the numbers of the hosts.
void add_network(ClusterFacts& facts, const ClusterConfig& cluster, const std::map<std::string, int>& hosts);
// Returns the link on which every message takes `factor` times as long.
Link slower_link(Link link, double factor);
// Does the same for the links of pairs of devices and for what messages share, by the factors of `calibration`.
void calibrate_network(ClusterFacts& facts, const Calibration& calibration);
// Returns the cluster of a setup. The links of the profile are used unless the setup has links.
std::shared_ptr<const Cluster> cluster_of(const Setup& setup, const Profile& profile);
// Adds the setup's settings of the optimizer, of sums of gradients and of transfers to the costs of a plan. Over the
// transport `link` tensors are copied.
void add_settings(Costs& costs, const Setup& setup);
// Opens the data set that the setup names, with the changes of the setup. Without a path, opens the synthetic data set.
Dataset open_dataset(const Setup& setup, const Model& model);
// Returns the stages of a `uniform` workload that run forwards only: the first stages, as long as they are frozen.
// Throws if all stages are frozen.
std::vector<int> forwards_only_of_uniform(const Setup& setup);
// Returns the stage costs of a `uniform` workload. For one micro-batch a device does the work of `per_device` stages.
// Messages follow `edges`, or a chain. Throws if `workload.imbalance` is more than all stages take together.
Costs uniform_costs(const Setup& setup, int per_device = 1, const std::optional<std::vector<Edge>>& edges = {});
// Where the first and the last layer are divided among all devices: the parts of the embedding and the gradients of the
// head's input are summed on their way, so that the receiver gets one tensor in all. W of a part of the head reads its
// input.
void sum_on_the_way(Costs& costs, const Shape& shape);
// Returns the costs of an executed plan of this shape: the costs of the stages, plus those of cluster, transport and
// sums of gradients. All predictions of plans of layers use these costs.
Costs complete_costs(Costs of_stages, const Setup& setup, std::shared_ptr<const Cluster> cluster,
                     const LayerGraph& graph, const StageSplit& split, const Shape& shape);

}  // namespace pw

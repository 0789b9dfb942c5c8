// What a config names, built: model, data set, profile, split and the costs around them. All throw Error (BadInput) at
// the key that asked for what cannot be.
#pragma once

#include "job/config/config.h"
#include "schedules/plan/plan.h"

namespace pw {

// Builds the model that the config names (not for `uniform`, nor for instances that only `search` takes).
Model build_model(const Config& config);
// Makes the split that the config asks for; `profile` serves `auto`.
StageSplit make_split(const Config& config, const Model& model, const Profile& profile);
// Sets which gradients of a tensor with several readers are summed first, as run.fan_out_gradients says; a new split
// sums by stages.
void group_readers(StageSplit& split, const RunConfig& run);
// Returns the profile of the config's cost source (cost_source.h).
Profile profile_of(const Config& config, const Model& model);
// Returns the profile with the dispatch that the config gives, if it gives one. Throws where the profile has a link
// between hosts that counts, and the config does not say which devices share one.
Profile in_cluster(Profile profile, const Config& config);
// Returns the config's cluster; its links are the profile's unless the config has its own.
std::shared_ptr<const Cluster> cluster_of(const Config& config, const Profile& profile);
// Adds to the costs of a plan what the config says of the optimizer, of sums of gradients and of transfers. Over the
// transport `link` tensors are copied.
void add_settings(Costs& costs, const Config& config);
// Opens the data set that the config names, changed as it says; without a path the synthetic one stands in.
Dataset open_dataset(const Config& config, const Model& model);
// Returns the stage costs of a `uniform` workload. For one micro-batch a device does the work of `per_device` stages.
// Throws Error (BadInput) where `workload.imbalance` asks for more than all stages take.
Costs uniform_costs(const Config& config, int per_device = 1);
// Returns what a plan of this shape costs as it is executed: the stages' costs, and what cluster, transport and sums of
// gradients add. Whoever predicts or judges a plan of layers takes its costs from here.
Costs complete_costs(Costs of_stages, const Config& config, std::shared_ptr<const Cluster> cluster,
                     const LayerGraph& graph, const StageSplit& split, const Shape& shape);

}  // namespace pw

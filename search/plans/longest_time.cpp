#include "search/plans/longest_time.h"

#include "job/build.h"
#include "schedules/memory/limits.h"
#include "workloads/costs/cost_totals.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

double sum_of(const std::vector<StageCost>& layers) {
    StageCost sum;
    for (const StageCost& layer : layers)
        sum += layer;
    return all_times_of(sum);
}

// Returns the mean of the lengths, each as long as its longest operation; not less than 1.
double longest_mean(const std::vector<MicroBatchLength>& lengths) {
    double sum = 0;
    for (const auto& [forward, input, weight, bytes] : lengths)
        sum += std::max({1.0, forward, input, weight, bytes});
    return lengths.empty() ? 1 : sum / static_cast<double>(lengths.size());
}

}  // namespace

void refuse_long_splits(const Plan& plan, const CostTable& costs, const LayerGraph& graph, const Setup& setup,
                        const Profile& profile) {
    const double longest = longest_mean(setup.pipeline.micro_batch_lengths);
    const double messages_of_edge = longest * plan.shape.microbatches, updates = plan.shape.updates();
    const double micro_batches = messages_of_edge / plan.shape.slices;
    double tasks = 0, slowest = 1, bytes = 0, sent = 0;
    Bytes weights = 0;
    for (const std::vector<Task>& order : plan.order)
        tasks += static_cast<double>(order.size());
    for (const DeviceConfig& device : setup.cluster.devices)
        slowest = std::min(slowest, device.speed);
    for (std::size_t layer = 0; layer < costs.bytes().size(); ++layer) {
        const LayerBytes& own = costs.bytes()[layer];
        const auto readers = static_cast<double>(out_degree(layer, graph));
        const double tensors = std::min<double>(readers, plan.shape.stages);
        const bool by_layer = setup.run.fan_out_gradients == RunConfig::FanOutGradients::Layer;
        bytes += all_bytes_of(own);
        weights += own.weights;
        sent += (tensors + (by_layer ? readers : tensors)) * static_cast<double>(own.output);
    }
    const Bytes exchanged = std::max(weights, held_of_weights(weights, weights, kept_of(setup), 0).gradients);
    const std::shared_ptr<const Cluster> cluster = cluster_of(setup, profile);
    const double stages = plan.shape.stages, messages = stages * std::min(stages, 1.0 * num_edges(graph) + 1);
    const double compute = micro_batches * std::max(sum_of(costs.alone()), sum_of(costs.busy())) / slowest +
                           tasks * static_cast<double>(profile.dispatch.median);
    const double moving = micro_batches * sent / cluster->link.bandwidth * 1e9 +
                          messages_of_edge * 2 * messages * static_cast<double>(cluster->link.latency) +
                          updates * (2 * static_cast<double>(exchanged) / cluster->sums.bandwidth * 1e9 +
                                     2 * static_cast<double>(cluster->sums.latency) * setup.cluster.devices.size() *
                                         buckets_of(exchanged, setup.sum_bucket));
    constexpr double kYear = 365.25 * 24 * 3600 * 1e9;
    if (const double all = compute + moving; !(all <= static_cast<double>(kLongestPlan)))
        fail_about({moving > compute ? Setting::LinkBandwidth
                    : slowest < 1    ? Setting::Devices
                                     : Setting::ComputeRate},
                   "{} of {} micro-batches may take {:.4g} years, and times are counted up to {:.0f}\n  help: {}",
                   plan.schedule, plan.shape.microbatches, all / kYear, static_cast<double>(kLongestPlan) / kYear,
                   moving > compute
                       ? "raise the link's bandwidth, as in 10 GB/s"
                       : "raise the rate of computing or the devices' speed, or search fewer micro-batches");
    if (4 * (micro_batches + 1) * bytes > static_cast<double>(kLargestPlan))
        fail_about({Setting::MicroBatchSize},
                   "the tensors of {} micro-batches may add up to {:.4g} bytes, and they are counted up to {:.4g}\n"
                   "  help: search fewer or smaller micro-batches",
                   plan.shape.microbatches, 4 * micro_batches * bytes, static_cast<double>(kLargestPlan));
}

}  // namespace pw

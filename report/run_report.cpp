#include "report/run_report.h"

#include "workloads/costs/micro_batch_sizes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace pw {

namespace {

double mean_loss_of(const RunResult& result) {
    return std::accumulate(result.losses.begin(), result.losses.end(), 0.0) / static_cast<double>(result.losses.size());
}

}  // namespace

Json to_json(const RunResult& result, const Report& measured) {
    Json json = to_json(measured);
    std::vector<Ns> times = step_times(result.trace);
    if (times.size() > 1)
        times.erase(times.begin());  // the first step is not like the rest
    std::sort(times.begin(), times.end());
    if (!times.empty())
        json["step_time_spread_ns"] = times[(times.size() - 1) * 9 / 10] - times[(times.size() - 1) / 10];
    json["losses"] = result.losses;
    json["gradient_norms"] = result.gradient_norms;
    json["weights_hash"] = result.weights_hash;
    if (result.resident_growth)
        json["resident_memory_bytes"] = *result.resident_growth;
    for (const GpuUse& gpu : result.gpus)
        json["gpus"].push_back({{"rank", gpu.rank},
                                {"gpu", gpu.gpu},
                                {"devices", gpu.devices},
                                {"used_bytes", gpu.used},
                                {"grown_bytes", gpu.grown}});
    if (!result.disturbance.cpu_share.empty()) {
        json["cpu_share"] = result.disturbance.cpu_share;
        json["stolen_share"] = result.disturbance.stolen;
    }
    for (const DevicePlace& place : result.places)
        json["places"].push_back(
            {{"rank", place.rank}, {"host", place.host}, {"cores", place.cores}, {"numa_node", place.numa_node}});
    return json;
}

std::string learning_text(const RunResult& result) {
    if (result.gradient_norms.empty() && !result.losses.empty())  // nothing was trained
        return fmt::format("mean loss {:.4f} of {} mini-batches   weights {}\n", mean_loss_of(result),
                           result.losses.size(), result.weights_hash);
    if (result.losses.empty())
        return fmt::format("weights {}\n", result.weights_hash);
    return fmt::format("loss {:.4f} to {:.4f} in {} updates   weights {}\n", result.losses.front(),
                       result.losses.back(), result.losses.size(), result.weights_hash);
}

std::vector<double> samples_after(const Job& job, std::size_t updates, std::int64_t before) {
    const Shape& shape = job.plan.shape;
    const MicroBatchSizes sizes = sizes_of(job.setup.pipeline);
    std::vector<double> samples;
    for (std::size_t k = 0; k < updates; ++k) {
        const auto steps = static_cast<std::int64_t>(k) / shape.updates();
        const int update = static_cast<int>(static_cast<std::int64_t>(k) % shape.updates());
        const std::int64_t microbatches = steps * shape.microbatches + shape.last_of(update) + 1;
        samples.push_back(static_cast<double>(before + sizes.first_sample(microbatches / shape.slices)));
    }
    return samples;
}

std::function<void(const Progress&)> progress_for(const Hooks& hooks) {
    return [hooks](const Progress& progress) {
        hooks.show(fmt::format("step {}/{}   loss {:.4f}   {}/step", progress.step, progress.steps, progress.loss,
                               print_time(progress.step_time)));
    };
}

}  // namespace pw

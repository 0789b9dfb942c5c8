#include "cli/prediction.h"

#include "cli/streams.h"
#include "cli/table.h"
#include "exec/engine/pin.h"
#include "exec/execute.h"
#include "exec/yardstick.h"
#include "job/config.h"
#include "job/cost_source.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pw {

namespace {

void print_notes(const Notices& notices) {
    for (const std::string& notice : notices)
        print_note(notice);
}

std::string note_on_uniform(const Config& config) {
    if (!config.cluster.profile.empty())
        return "model: uniform has its own times: cluster.profile is not used";
    if (config.pipeline.micro_batch_size != 1)
        return fmt::format(
            "the times and sizes of model: uniform are those of a micro-batch, whatever its size: "
            "pipeline.micro_batch_size {} counts in samples/s only",
            config.pipeline.micro_batch_size);
    return {};
}

// Sizes of micro-batches that every layer has times and bytes of.
std::vector<int> sizes_in(const Profile& profile) {
    std::vector<int> sizes;
    for (const auto& [size, data] : profile.data)
        if (std::all_of(profile.layers.begin(), profile.layers.end(), [size = size](const LayerProfile& layer) {
                return layer.times.contains(size) && layer.bytes.contains(size);
            }))
            sizes.push_back(size);
    return sizes;
}

std::string first_layers(const Job& job) {
    std::string text;
    for (const std::vector<int>& layers : job.split.layers)
        text += (text.empty() ? "" : " | ") + job.model->layers[static_cast<std::size_t>(layers.front())].name;
    return text;
}

}  // namespace

Job job_of(Config config) {
    Notices notices;
    Job job = make_job(std::move(config), notices);
    print_notes(notices);
    return job;
}

Job job_of(Config config, Profile measured) {
    Notices notices;
    Job job = make_job(std::move(config), std::move(measured), notices);
    print_notes(notices);
    return job;
}

std::string summary_of(const Job& job) {
    const std::string stages =
        job.model ? fmt::format("stages from {}", first_layers(job)) : fmt::format("{} stages", job.plan.shape.stages);
    return fmt::format("{}, {}, {}, {}{}", job.model ? job.model->name : job.config.workload.model, stages,
                       job.plan.schedule, print(sizes_of(job.config.pipeline)),
                       job.config.pipeline.micro_batch_lengths.empty() ? "" : ", of unequal lengths");
}

std::string note_on_sizes(const Job& job, const std::vector<int>& used) {
    const std::vector<int> known = sizes_in(job.profile);
    std::vector<int> missing;
    for (const int size : used)
        if (std::find(known.begin(), known.end(), size) == known.end())
            missing.push_back(size);
    if (missing.empty() || job.source == CostSource::Analytic)
        return {};
    if (job.source == CostSource::File)
        return fmt::format("{} has no times for micro-batches of {}: scaled from {}", job.model->name,
                           fmt::join(missing, ", "),
                           known.empty() ? "other sizes" : fmt::to_string(fmt::join(known, ", ")));
    return fmt::format(
        "the profile has no times for micro-batches of {}: {} from {}; add --sizes {} to "
        "`pipewright profile`",
        fmt::join(missing, ", "), known.size() == 1 ? "scaled" : "interpolated", fmt::join(known, ", "),
        fmt::join(missing, ","));
}

namespace {

std::string note_on_share(const Profile& profile) {
    return profile.cpu_share < kQuietShare
               ? fmt::format(
                     "the profile was measured with {:.0f} % of its cores, beside other programs: measure it "
                     "again on a quiet machine",
                     100 * profile.cpu_share)
               : "";
}

// Devices on the host that has the most.
int most_on_a_host(const Costs& costs, int devices) {
    std::map<int, int> on;
    for (const int host : costs.host)
        ++on[host];
    int most = costs.host.empty() ? devices : 0;
    for (const auto& [host, count] : on)
        most = std::max(most, count);
    return most;
}

std::string note_on_neighbours(const Job& job) {
    const int known = job.profile.neighbours + 1, most = most_on_a_host(job.costs, job.plan.shape.devices);
    if (job.costs.busy.empty() || known == 1 || most <= known)
        return {};
    return fmt::format(
        "the profile was measured with {} devices computing at once, and a host has {} here: what more than {} cost "
        "each "
        "other is not predicted; measure it on such a host",
        known, most, known);
}

std::string note_on_profile(const Job& job) {
    const RunConfig& run = job.config.run;
    if (!is_emulated(job.config) &&
        (job.profile.backend != name_of(run.backend) || job.profile.threads_per_device != run.threads_per_device))
        return fmt::format("the profile is of backend {} with {} thread(s) per device, the config runs {} with {}",
                           job.profile.backend, job.profile.threads_per_device, name_of(run.backend),
                           run.threads_per_device);
    if (run.backend == RunConfig::Backend::Cuda && run.deterministic && !job.profile.convolutions.empty())
        return "the profile was measured with the fastest convolutions; with run.deterministic: true others run";
    return note_on_sizes(job, sizes_of(job.config.pipeline).different());
}

std::string note_on_source(const Job& job) {
    switch (job.source) {
        case CostSource::Uniform:
            return note_on_uniform(job.config);
        case CostSource::File:
            return note_on_sizes(job, sizes_of(job.config.pipeline).different());
        case CostSource::Measured:
            return note_on_profile(job);
        case CostSource::Analytic:
            return "analytic costs: run `pipewright profile` to calibrate";
    }
    return {};
}

}  // namespace

std::string note_on_costs(const Job& job) {
    std::string all;
    for (const std::string& note : {note_on_share(job.profile), note_on_neighbours(job), note_on_source(job)})
        if (!note.empty())
            all += (all.empty() ? "" : "\nnote: ") + note;
    return all;
}

std::string note_on_speed(const Job& job) {
    const Profile& profile = job.profile;
    if (job.source != CostSource::Measured || profile.reference.median <= 0 || profile.machine != machine_name())
        return {};
    const int devices = profile.neighbours > 0 ? profile.neighbours + 1 : job.plan.shape.devices;
    const CorePlan cores = plan_cores(devices, job.config.run.threads_per_device, numa_nodes(job.config, devices));
    if (cores.shared)  // the same work takes longer there, on whatever machine
        return {};
    Yardstick yardstick;
    for (int repeat = 0; repeat < 5; ++repeat)
        yardstick.times.push_back(yardstick_time(cores));
    const auto before = static_cast<double>(profile.reference.median), now = static_cast<double>(yardstick.median());
    const double scatter = static_cast<double>(std::max(profile.reference.spread, yardstick.spread())) / before;
    if (std::abs(now / before - 1) <= std::max(scatter, 0.05))
        return {};
    return fmt::format(
        "this machine does reference work in {}; when the profile was measured it took {}: it is {:.0f} % {}",
        print_time(yardstick.median()), print_time(profile.reference.median), 100 * std::abs(now / before - 1),
        now > before ? "slower" : "faster");
}

void require_layers(const Config& config, const std::string& command) {
    const CostSource source = cost_source_of(config).source;
    if (source == CostSource::File)
        config.fail_at("workload.model",
                       fmt::format("'{}' has times and sizes, but nothing to {}", config.workload.model, command),
                       "use `pipewright simulate`, run with run.backend: emulated, or name a built-in model: "
                       "`pipewright list models`");
    if (source == CostSource::Uniform)
        config.fail_at(
            "workload.model", fmt::format("a uniform workload has no layers to {}", command),
            "use `pipewright simulate`, run with run.backend: emulated, or name a model: `pipewright list models`");
}

}  // namespace pw

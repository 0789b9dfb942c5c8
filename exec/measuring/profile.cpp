// The profile: runs the whole model as a stage on a single device and times every kernel call in its pass, so that the
// caches are as warm or cold as in a run.
#include "exec/measuring/profile.h"
#include "exec/backends.h"
#include "exec/engine/machine.h"
#include "exec/engine/pin.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/execute.h"
#include "exec/measuring/bench.h"
#include "exec/measuring/host_link.h"
#include "exec/measuring/neighbours.h"
#include "exec/measuring/own_thread.h"
#include "exec/measuring/reference_work.h"
#include "exec/measuring/stop_watch.h"
#include "exec/ranks/measure_link.h"
#include "exec/ranks/ranks.h"
#include "exec/runnable.h"
#include "job/build.h"
#include "workloads/machine_memory.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/process.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>
#include <optional>

namespace pw {

namespace {

// Mini-batches are timed alternately alone and in parallel with computing neighbours, so that the machine's speed
// is the same for both.
constexpr int kTurns = 4;
constexpr int kInFlight = 3;  // micro-batches (activations of a single micro-batch could still be in the cache)

Profile described(const Setup& setup, const Model& model, const TransferCost& transfer, const Kernels& kernels) {
    Profile profile;
    profile.model = model.name;
    profile.backend = name_of(setup.run.backend);
    profile.machine = kernels.machine();
    profile.date = today();
    profile.input = model.input;
    profile.classes = model.classes;
    profile.threads_per_device = setup.run.threads_per_device;
    profile.precision = setup.training.precision;
    profile.optimizer = setup.training.optimizer;
    profile.link = transfer.link;
    profile.between_hosts = transfer.between_hosts;
    profile.sums = transfer.sums;
    profile.sent_copies = transfer.sent_copies;
    for (std::size_t layer = 0; layer < boost::num_vertices(model.layers); ++layer)
        profile.layers.push_back({.name = model.layers[layer].name});
    return profile;
}

// The whole model on a single device, through the engine, for about a second.
Job job_of_one_device(Setup setup, const Model& model, const Profile& profile, int samples) {
    constexpr int kInStep = 2, kMostSteps = 20;
    constexpr double kSecond = 1e9;
    const std::vector<Ns> layers = layer_times(model.layers, profile, samples);
    const double step = kInStep * std::accumulate(layers.begin(), layers.end(), 1.0);
    setup.cluster = {};
    setup.cluster.devices.resize(1);
    setup.pipeline = {};
    setup.pipeline.schedule = "naive";
    setup.pipeline.stages = 1;
    setup.pipeline.micro_batches = kInStep;
    setup.pipeline.micro_batch_size = samples;
    setup.pipeline.mini_batch = std::int64_t{kInStep} * samples;
    setup.transfer = {};
    setup.sum_bucket = 0;
    setup.mover_share = 0;
    setup.training.zero = 0;
    setup.training.learning_rate = 0;
    setup.training.steps = static_cast<int>(std::clamp(kSecond / step, 2.0, double{kMostSteps}));
    setup.run.transport = RunConfig::Transport::Threads;
    Notices ignored;
    return make_job(std::move(setup), model, ignored);
}

// Returns the time between two tasks of a device in the engine if the second waits for nothing else.
Measured measure_dispatch(const Setup& setup, const Model& model, const Profile& profile, int samples) {
    const Trace trace = run(job_of_one_device(setup, model, profile, samples), {}).trace;
    std::vector<Ns> gaps;
    const TraceEvent* before = nullptr;
    for (const TraceEvent& event : trace.events) {
        if (before && before->step == event.step && event.step > 0 && is_compute(event.task.op))
            gaps.push_back(event.start - before->end);
        before = &event;
    }
    return median_of(std::move(gaps));
}

// Returns the cores of the devices that are measured in parallel: the devices of the first device's host, the first
// device first. If devices are on several ranks, all ranks call it together, and only rank 0 gets the cores.
CorePlan cores_to_measure_on(const Setup& setup) {
    const std::vector<DeviceConfig>& all = setup.cluster.devices;
    const int devices = std::max(1, static_cast<int>(all.size()));
    if (setup.run.transport == RunConfig::Transport::Mpi && join_ranks().size() > 1)
        return cores_of_first_host(setup, devices, join_ranks());
    const std::vector<int> nodes = numa_nodes(setup, devices);
    const auto here = std::ranges::count_if(all, [&](const DeviceConfig& one) { return one.host == all[0].host; });
    return plan_cores(nodes.empty() ? std::max(1, static_cast<int>(here)) : devices, setup.run.threads_per_device,
                      nodes);
}

// Returns the reason why layers cannot be timed in parallel with neighbours, empty if they can. Each neighbour
// holds the whole model, and a system that has overcommitted its memory kills the process.
std::string reason_against_neighbours(const Bench& bench, const CorePlan& cores) {
    const auto neighbours = static_cast<Bytes>(cores.cores.size()) - 1;
    if (cores.shared)
        return fmt::format("there are fewer cores here than {} devices need", neighbours + 1);
    if (!std::ranges::all_of(cores.cores, can_pin_this_thread))
        return fmt::format("this process may not use the cores of all {} devices here", neighbours + 1);
    const Bytes wanted = bench.memory_with(kInFlight) + neighbours * bench.memory_with(Neighbours::kInFlight);
    const Bytes most = memory_of_machine() / 4 * 3;
    return wanted <= most
               ? ""
               : fmt::format("{} copies of the model take {}, and three quarters of this machine's memory are {}",
                             neighbours + 1, print_bytes(wanted), print_bytes(most));
}

Profile measure(const Setup& setup, const Model& model, const std::vector<int>& samples,
                const std::function<void(int, int)>& progress) {
    const TransferCost transfer =
        measure_transfer_cost(setup);  // before this thread is pinned: it uses the cores of two devices
    const CorePlan cores = cores_to_measure_on(setup);
    const auto devices = static_cast<int>(cores.cores.size());
    pin_this_thread(cores.cores[0]);
    const OpenDevice open = open_kernels(setup, devices);
    const std::shared_ptr<const Kernels> kernels = open(0);
    const Dataset data = open_dataset(setup, model);
    Profile profile = described(setup, model, transfer, *kernels);
    profile.host_link = measure_host_link(*kernels);
    ReferenceWork reference_work;
    const auto measure_reference_work = [&] {
        if (kernels->on_host())
            reference_work.times.push_back(reference_work_time(cores));
    };
    measure_reference_work();
    const bool has_neighbours = devices > 1 && kernels->has_neighbours();
    std::string why_alone;  // why no size is timed in parallel with neighbours (empty if there is no reason)
    for (std::size_t size = 0; size < samples.size(); ++size) {
        Bench bench(setup, model, data, *kernels, samples[size], kInFlight);
        if (has_neighbours && kernels->on_host() && why_alone.empty())
            why_alone = reason_against_neighbours(bench, cores);
        std::optional<Neighbours> neighbours;
        if (has_neighbours && why_alone.empty())
            neighbours.emplace(setup, model, data, cores, open, samples[size]);
        PassTimes alone(profile.layers.size()), busy = alone;
        for (int turn = 0; turn < kTurns; ++turn) {
            if (progress)
                progress(static_cast<int>(size) * kTurns + turn, static_cast<int>(samples.size()) * kTurns);
            bench.take_turn(alone);
            if (!neighbours)
                continue;
            neighbours->start();
            bench.take_turn(busy);
            neighbours->stop();
        }
        bench.store(alone, neighbours ? &busy : nullptr, profile);
        if (kernels->on_host())
            profile.cpu_share = std::min(profile.cpu_share, std::round(1000 * bench.cpu_share()) / 1000);
        measure_reference_work();
    }
    if (has_neighbours && why_alone.empty())
        profile.neighbours = devices - 1;
    if (!why_alone.empty()) {
        profile.notes.push_back("layers were timed on one device alone, not in parallel with the others: " + why_alone);
        for (LayerProfile& layer : profile.layers)
            layer.busy.clear();  // no size has busy times if any size has none
    }
    if (kernels->on_host())
        profile.dispatch = measure_dispatch(setup, model, profile, samples.front());
    profile.reference = {reference_work.median(), reference_work.spread()};
    profile.convolutions = kernels->convolutions();
    return profile;
}

}  // namespace

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16] = {};
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
    return text;
}

void help_to_measure(const Setup& setup) {
    (void)measure_links(join_ranks(), host_name());
    (void)cores_to_measure_on(setup);
}

Profile measure_profile(const Setup& setup, const Model& model, const std::vector<int>& samples,
                        const std::function<void(int done, int all)>& progress) {
    check_kernels(setup);
    Setup trained = setup;  // a profile has the times of all passes, whatever a config freezes
    Model whole = model;
    trained.workload.frozen.clear();
    train_all(whole.layers);
    Profile profile;
    on_own_thread("the profile", [&] { profile = measure(trained, whole, samples, progress); });
    return profile;
}

}  // namespace pw

#include "report/notes.h"

#include "exec/backends.h"
#include "exec/engine/pin.h"
#include "exec/measuring/reference_work.h"
#include "exec/system/disturbance.h"
#include "job/cost_source.h"
#include "job/idle_keys.h"
#include "job/makes.h"
#include "job/setup/setup.h"
#include "report/calibration.h"
#include "schedules/memory/buffers.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/data/data_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace pw {

namespace {

std::string note_on_uniform(const Setup& setup) {
    if (!setup.cluster.profile.empty())
        return "model: uniform has its own times: cluster.profile is not used";
    if (setup.pipeline.micro_batch_size != 1)
        return fmt::format(
            "the times and sizes of model: uniform are those of a micro-batch, whatever its size: "
            "pipeline.micro_batch_size {} counts in samples/s only",
            setup.pipeline.micro_batch_size);
    return {};
}

// The origin of times at a size at which a layer was not measured: "interpolated from 2, 4".
std::string estimate_of(const LayerProfile& layer, int size) {
    auto high = layer.times.lower_bound(size);
    if (layer.times.size() == 1)
        return fmt::format("scaled from {}", layer.times.begin()->first);
    const bool between = high != layer.times.begin() && high != layer.times.end();
    if (high == layer.times.end())
        --high;
    if (high == layer.times.begin())
        ++high;
    return fmt::format("{} from {}, {}", between ? "interpolated" : "extrapolated", std::prev(high)->first,
                       high->first);
}

// Sizes of `used` at which some layer was not measured, by the origin of their times.
std::map<std::string, std::vector<int>> estimated(const Profile& profile, const std::vector<int>& used) {
    std::map<std::string, std::vector<int>> sizes;
    for (const int size : used) {
        std::set<std::string> ways;
        for (const LayerProfile& layer : profile.layers)
            if (!has_times(layer, size))
                ways.insert(estimate_of(layer, size));
        if (!ways.empty())
            sizes[fmt::format("{}", fmt::join(ways, ", "))].push_back(size);
    }
    return sizes;
}

std::string first_layers(const Job& job) {
    std::string text;
    for (const std::vector<int>& layers : job.split.layers)
        text += (text.empty() ? "" : " | ") +
                (layers.empty() ? "-" : job.model->layers[static_cast<std::size_t>(layers.front())].name);
    return text;
}

}  // namespace

std::string summary_of(const Job& job) {
    const std::string stages =
        job.model ? fmt::format("stages from {}", first_layers(job)) : fmt::format("{} stages", job.plan.shape.stages);
    return fmt::format("{}, {}, {}, {}{}", job.model ? job.model->name : job.setup.workload.model, stages,
                       job.plan.schedule, print(sizes_of(job.setup.pipeline)),
                       job.setup.pipeline.micro_batch_lengths.empty() ? "" : ", of unequal lengths");
}

namespace {

// Which sizes have no times of their own, and what their times are made from.
std::string note_on_sizes(const Job& job, const std::vector<int>& used) {
    if (job.source == CostSource::Analytic)
        return {};
    std::string text;
    std::vector<int> missing;
    for (const auto& [way, sizes] : estimated(job.profile, used)) {
        text += fmt::format("{} {}: {}", text.empty() ? "micro-batches of" : "; of", fmt::join(sizes, ", "), way);
        missing.insert(missing.end(), sizes.begin(), sizes.end());
    }
    if (missing.empty())
        return {};
    if (job.source == CostSource::File)
        return fmt::format("{} has no times for {}", job.model->name, text);
    std::sort(missing.begin(), missing.end());
    return fmt::format("the profile has no times for {}; add --sizes {} to `pipewright profile`", text,
                       fmt::join(missing, ","));
}

std::string note_on_share(const Profile& profile) {
    return profile.cpu_share < kQuietShare
               ? fmt::format(
                     "the profile was measured with {:.0f} % of its cores, in parallel with other programs: measure it "
                     "again on a quiet machine",
                     100 * profile.cpu_share)
               : "";
}

// Devices on the host that has the most.
int most_on_a_host(const Costs& costs, int devices) {
    std::map<int, int> on;
    for (const int host : costs.cluster->host)
        ++on[host];
    int most = costs.cluster->host.empty() ? devices : 0;
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

std::string note_on_profile(const Job& job, const std::vector<int>& used) {
    const RunConfig& run = job.setup.run;
    if (!is_emulated(job.setup) &&
        (job.profile.backend != name_of(run.backend) || job.profile.threads_per_device != run.threads_per_device))
        return fmt::format("the profile is of backend {} with {} thread(s) per device, the config runs {} with {}",
                           job.profile.backend, job.profile.threads_per_device, name_of(run.backend),
                           run.threads_per_device);
    if (run.backend == RunConfig::Backend::Cuda && run.deterministic && !job.profile.convolutions.empty())
        return "the profile was measured with the fastest convolutions; with run.deterministic: true others run";
    if (job.profile.optimizer != job.setup.training.optimizer)
        return fmt::format(
            "the profile was measured with optimizer {}: an update by {} is predicted from how often each passes over "
            "the memory",
            name_of(job.profile.optimizer), name_of(job.setup.training.optimizer));
    return note_on_sizes(job, used);
}

void add_note(Notices& notes, std::string note) {
    if (!note.empty())
        notes.push_back(std::move(note));
}

// The largest number of samples of every layer counts.
Notices notes_on_spread(const Profile& profile) {
    Ns median = 0, spread = 0;
    for (const LayerProfile& layer : profile.layers)
        if (!layer.times.empty()) {
            const LayerTimes& times = layer.times.rbegin()->second;
            median += times.forward.median + times.backward.median;
            spread += times.forward.spread + times.backward.spread;
        }
    return warnings_of_spread(median, spread);
}

Notices notes_on_file(const Job& job, const std::vector<int>& used) {
    Notices notes = job.profile.notes;
    for (std::string& note : notes_on_spread(job.profile))
        notes.push_back(std::move(note));
    if (const int size = job.setup.pipeline.micro_batch_size; job.profile.any_size && size != 1)
        notes.push_back(fmt::format(
            "the times and sizes of {} are those of a micro-batch, whatever its size: pipeline.micro_batch_size {} "
            "counts in samples/s only",
            job.model->name, size));
    add_note(notes, note_on_sizes(job, used));
    return notes;
}

std::string note_on_rates(const Setup& setup) {
    const std::optional<ProductRate> rate = rate_of_kind(setup);
    const std::shared_ptr<const ProductRates> products = product_rates_of(setup);
    const std::string by_shape = products ? fmt::format("of linear layers by {} products measured on {}",
                                                        products->table.rows.size(), products->table.device)
                                          : "";
    if (!rate || rate->flops != setup.cluster.rates.flops)
        return fmt::format("analytic costs{}{}: run `pipewright profile` to calibrate", products ? ", " : "", by_shape);
    std::string further;
    for (const DeviceMake& make : setup.cluster.makes)
        if (!make.device.empty() && make.device != setup.cluster.device)
            further += fmt::format(", of {} by its own", make.device);
    return fmt::format(
        "analytic costs at {}, {} of {} in {}{}{}; run `pipewright profile` to calibrate", exact_flops(rate->flops),
        rate->is_measured ? "the fastest measured product" : "the vendor's peak", setup.cluster.device,
        name_of(setup.training.precision), further, products ? ", and " + by_shape : ": no layer takes less");
}

std::string note_on_shapes(const Setup& setup) {
    std::set<std::string> measured;
    for (std::size_t make = 0; make < setup.cluster.makes.size(); ++make)
        if (const auto products = product_rates_of(of_make(setup, static_cast<int>(make))))
            measured.insert(products->table.device);
    if (measured.size() > 1)
        return fmt::format(
            "costs by the shapes of products, measured on {} in {}, not measured in this program on these devices",
            fmt::join(measured, " and "), name_of(setup.training.precision));
    const std::shared_ptr<const ProductRates> products = product_rates_of(setup);
    if (!setup.cluster.products.empty())
        return fmt::format(
            "costs by the shapes of products, {} of which cluster.products has, measured on {} in {}; "
            "nothing else was measured on these devices",
            products->table.rows.size(), products->table.device, name_of(products->table.precision));
    return fmt::format("costs by the shapes of products{}, not measured in this program on these devices",
                       products ? fmt::format(", {} of which were measured on {} in {}", products->table.rows.size(),
                                              products->table.device, name_of(products->table.precision))
                                : ", at the rate of the fastest one");
}

std::string note_on_parts(const Transformer& model) {
    return model.not_counted.empty()
               ? ""
               : fmt::format("not counted of {}: {}", model.name, fmt::join(model.not_counted, "; "));
}

Notices notes_on_source(const Job& job, const std::vector<int>& used) {
    switch (job.source) {
        case CostSource::Uniform:
            return {note_on_uniform(job.setup)};
        case CostSource::File:
            return notes_on_file(job, used);
        case CostSource::Shapes:
            return {note_on_shapes(job.setup), note_on_parts(*job.setup.workload.transformer)};
        case CostSource::Measured:
            return {note_on_profile(job, used)};
        case CostSource::Analytic:
            return {note_on_rates(job.setup)};
    }
    return {};
}

}  // namespace

Notices notes_on_idle_keys(const Job& job) {
    Notices notes;
    for (const IdleKey& key : idle_keys(job.setup, job.plan))
        notes.push_back(print(key));
    return notes;
}

Notices notes_on_costs(const Job& job, std::vector<int> sizes) {
    if (sizes.empty())
        sizes = sizes_of(job.setup.pipeline).different();
    Notices notes;
    add_note(notes, note_on_share(job.profile));
    add_note(notes, note_on_neighbours(job));
    for (std::string& note : notes_on_source(job, sizes))
        add_note(notes, std::move(note));
    add_note(notes, note_on_calibration(job.setup.calibration));
    return notes;
}

std::string note_on_host_memory(const Job& job) {
    if (std::ranges::none_of(job.plan.order, has_copies))
        return {};
    const std::vector<Buffer> on_hosts =
        host_buffers_of(buffers_of(job.plan, job.costs, job.versions, job.setup.transfer.early_receive()));
    const std::vector<Bytes> blocks = pack(on_hosts, job.plan.shape.devices).arena;
    const auto most = std::ranges::max_element(blocks);
    return fmt::format("offloaded tensors need {} in the memory of the hosts, {} of these for device {}",
                       print_bytes(std::accumulate(blocks.begin(), blocks.end(), Bytes{0})), print_bytes(*most),
                       most - blocks.begin());
}

std::string note_on_precision(const Setup& setup) {
    const bool depends =
        setup.cluster.kind && (setup.workload.transformer || find_model(setup.workload.model) != nullptr);
    return depends && !setup.places.contains("training.precision")
               ? fmt::format(
                     "no training.precision: predicted in {}; for mixed precision write training: {{precision: "
                     "bf16}}, or --set training.precision=bf16",
                     name_of(setup.training.precision))
               : "";
}

std::string note_on_speed(const Job& job) {
    const Profile& profile = job.profile;
    if (job.source != CostSource::Measured || profile.reference.median <= 0 || profile.machine != machine_name())
        return {};
    const int devices = profile.neighbours > 0 ? profile.neighbours + 1 : job.plan.shape.devices;
    const CorePlan cores = plan_cores(devices, job.setup.run.threads_per_device, numa_nodes(job.setup, devices));
    if (cores.shared)  // the same work takes longer there, on whatever machine
        return {};
    ReferenceWork reference_work;
    for (int repeat = 0; repeat < 5; ++repeat)
        reference_work.times.push_back(reference_work_time(cores));
    const auto before = static_cast<double>(profile.reference.median),
               now = static_cast<double>(reference_work.median());
    const double scatter = static_cast<double>(std::max(profile.reference.spread, reference_work.spread())) / before;
    if (std::abs(now / before - 1) <= std::max(scatter, 0.05))
        return {};
    return fmt::format(
        "this machine does reference work in {}; when the profile was measured it took {}: it is {:.0f} % {}; leave "
        "cluster.profile out, or compare with --interleave 8",
        print_time(reference_work.median()), print_time(profile.reference.median), 100 * std::abs(now / before - 1),
        now > before ? "slower" : "faster");
}

std::string note_on_data(const Setup& setup) {
    const bool replaced =
        !is_emulated(setup) && data_source(setup.workload.dataset).open != nullptr && setup.workload.path.empty();
    return replaced ? fmt::format("no workload.path: the synthetic set replaces {}", setup.workload.dataset) : "";
}

void require_layers(const Setup& setup, const std::string& what) {
    const CostSource source = cost_source_of(setup).source;
    if (source == CostSource::File)
        setup.fail_at("workload.model",
                      fmt::format("'{}' has times and sizes, but nothing to {}", setup.workload.model, what),
                      "use `pipewright simulate`, run with --set run.backend=emulated, or name a built-in model: "
                      "`pipewright list models`");
    if (source == CostSource::Shapes)
        setup.fail_at(
            "workload.model",
            fmt::format("the costs of {} follow from shapes: there is nothing to {}", setup.workload.model, what),
            "use `pipewright simulate`, run with --set run.backend=emulated, or measure its matrix products with "
            "`pipewright profile CONFIG --gemm -o FILE` for cluster.products");
    if (source == CostSource::Uniform)
        setup.fail_at("workload.model", fmt::format("a uniform workload has no layers to {}", what),
                      "use `pipewright simulate`, run with --set run.backend=emulated, or name a model: `pipewright "
                      "list models`");
}

std::string first_line(const Error& error) {
    return error.fact().substr(0, error.fact().find('\n'));  // a file's place is in the next
}

}  // namespace pw

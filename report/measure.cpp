#include "report/measure.h"

#include "exec/all_ranks.h"
#include "exec/measuring/profile.h"
#include "exec/system/disturbance.h"
#include "job/build.h"
#include "job/launched_ranks.h"
#include "job/transformer_job.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"
#include "workloads/transformers/transformer_model.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace pw {

Ns time_of(const LayerTimes& times) { return times.forward.median + times.backward.median; }

LayerTimes total_of(const std::vector<LayerProfile>& layers, int samples) {
    LayerTimes total;
    const auto add = [](Measured& sum, const Measured& part) {
        sum.median += part.median;
        sum.spread += part.spread;
    };
    for (const LayerProfile& layer : layers) {
        const LayerTimes& times = layer.times.at(samples);
        add(total.forward, times.forward);
        add(total.backward, times.backward);
        add(total.backward_input, times.backward_input);
        add(total.backward_weight, times.backward_weight);
    }
    return total;
}

MeasuredProfile measure_costs(const Setup& setup, const Model& model, const std::vector<int>& sizes,
                              const Hooks& hooks) {
    const StolenTime stolen;
    MeasuredProfile measured;
    measured.profile = measure_profile(setup, model, sizes, [&](int done, int all) {
        if (hooks.stops())
            fail_with(ExitCode::RunFailed, "the measurement was stopped");
        hooks.show(fmt::format("timing layers, turn {} of {}", done + 1, all));
    });
    measured.warnings = warnings_of({.cpu_share = {measured.profile.cpu_share}, .stolen = stolen.share()});
    Ns median = 0, spread = 0;
    for (const int samples : sizes) {
        const LayerTimes total = total_of(measured.profile.layers, samples);
        median += time_of(total);
        spread += total.forward.spread + total.backward.spread;
    }
    for (const std::string& warning : warnings_of_spread(median, spread))
        measured.warnings.push_back(warning);
    return measured;
}

MeasuredTable measure_products_by_shape(const Setup& setup, const std::vector<int>& sizes, Ns time,
                                        const Hooks& hooks) {
    std::set<Product> wanted;
    Setup unmeasured = setup;  // the file of products may not be there yet
    unmeasured.cluster.products.clear();
    if (setup.workload.transformer)
        for (const int samples : sizes)
            for (const Product& product : products_of(transformer_job_of(unmeasured), samples))
                wanted.insert(product.single());  // backends have no grouped products
    const StolenTime stolen;
    MeasuredTable measured;
    measured.products = measure_products(setup, {wanted.begin(), wanted.end()}, time, [&](int done, int all) {
        if (hooks.stops())
            fail_with(ExitCode::RunFailed, "the measurement was stopped");
        hooks.show(fmt::format("timing products, layer {} of {}", done + 1, all));
    });
    measured.warnings = warnings_of({.cpu_share = {measured.products.cpu_share}, .stolen = stolen.share()});
    Ns median = 0, spread = 0;
    for (const Measured& product : measured.products.times) {
        median += product.median;
        spread += product.spread;
    }
    for (const std::string& warning : warnings_of_spread(median, spread))
        measured.warnings.push_back(warning);
    return measured;
}

bool needs_profile(const Setup& setup) { return !is_emulated(setup) && setup.cluster.profile.empty(); }

MeasuredJob measured_job(Setup setup, const Hooks& hooks) {
    if (setup.run.backend == RunConfig::Backend::Cuda && runs_on_ranks(setup.run))
        setup.fail_at("run.transport", "compare runs GPUs in one process",
                      "start it without a launcher; or mpirun -n N pipewright run CONFIG --trace measured.json, and "
                      "then pipewright compare predicted.json measured.json");
    take_hosts_of_ranks(setup);
    MeasuredJob made;
    if (setup.cluster.link_given && !is_emulated(setup) && setup.run.transport != RunConfig::Transport::Link)
        made.notes.emplace_back(
            "cluster.link is predicted, but devices hand over as this machine does; with run.backend cpu "
            "run.transport: link emulates it");
    if (!needs_profile(setup)) {
        made.job = make_job(std::move(setup), made.notes);
        return made;
    }
    Profile profile = profile_of_first_rank(setup, [&] {
        MeasuredProfile measured =
            measure_costs(setup, build_model(setup), sizes_of(setup.pipeline).different(), hooks);
        made.notes.insert(made.notes.end(), measured.profile.notes.begin(), measured.profile.notes.end());
        made.warnings = std::move(measured.warnings);
        return std::move(measured.profile);
    });
    made.job = make_job(std::move(setup), std::move(profile), made.notes);
    return made;
}

}  // namespace pw

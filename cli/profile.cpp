// profile: measures the costs of layers, transfers and updates on the backend of a config.
#include "exec/measuring/profile.h"
#include "cli/command.h"
#include "cli/option_numbers.h"
#include "cli/outputs.h"
#include "cli/streams.h"
#include "exec/all_ranks.h"
#include "job/build.h"
#include "job/launched_ranks.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/table.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

namespace pw {

namespace {

constexpr std::size_t kSlowest = 10;  // layers in the table

struct ProfileArguments {
    ConfigArguments config;
    std::string output;
    std::vector<int> sizes;
    bool products = false;
    double seconds = 60;
};

std::vector<int> sizes_to_measure(const ProfileArguments& arguments, const Config& config) {
    std::vector<int> sizes = arguments.sizes.empty() ? sizes_of(config.pipeline).different() : arguments.sizes;
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

std::vector<std::string> row_of_layer(const std::string& name, const LayerTimes& times) {
    return {name,
            print_time(times.forward.median),
            print_time(times.backward.median),
            print_time(times.backward_input.median),
            print_time(times.backward_weight.median),
            print_time(times.forward.spread + times.backward.spread)};
}

std::string print_size(const Profile& profile, int samples) {
    std::vector<const LayerProfile*> layers;
    for (const LayerProfile& layer : profile.layers)
        layers.push_back(&layer);
    std::stable_sort(layers.begin(), layers.end(), [&](const LayerProfile* a, const LayerProfile* b) {
        return time_of(a->times.at(samples)) > time_of(b->times.at(samples));
    });
    const std::size_t shown = std::min(layers.size(), kSlowest);
    Table table({fmt::format("{} of {} layers", shown, layers.size()), "F", "B", "I", "W", "spread of F + B"});
    for (std::size_t k = 0; k < shown; ++k)
        table.add(row_of_layer(layers[k]->name, layers[k]->times.at(samples)));
    const LayerTimes total = total_of(profile.layers, samples);
    table.add(row_of_layer("all", total));
    return fmt::format("micro-batches of {}\n{}{:.4g} samples/s unpipelined\n\n", samples, table.print(),
                       samples * 1e9 / static_cast<double>(std::max<Ns>(time_of(total), 1)));
}

std::string print(const Link& link) {  // no bandwidth if tensors are passed by pointer
    return print_time(link.latency) +
           (std::isfinite(link.bandwidth)
                ? fmt::format(", {}{:.4g} GB/s", link.by_size.empty() ? "" : "by size up to ", link.bandwidth / 1e9)
                : std::string()) +
           (link.half_size > 0 ? fmt::format(", half of it at {}", print_bytes(link.half_size)) : std::string());
}

std::string print_rest(const Profile& profile) {
    Ns update = 0;
    for (const LayerProfile& layer : profile.layers)
        update += layer.update.median;
    const std::string between =
        profile.between_hosts ? fmt::format("   between hosts {}", print(*profile.between_hosts)) : "";
    return fmt::format("update {}   dispatch {}   hand-over {}{}   sums {}\n", print_time(update),
                       print_time(profile.dispatch.median), print(profile.link), between, print(profile.sums));
}

MeasuredProfile measure_shown(const Config& config, const Model& model, const std::vector<int>& sizes) {
    MeasuredProfile measured;
    {
        ProgressLine line;
        measured = measure_costs(config, model, sizes, {[&](const std::string& state) { line.show(state); }});
    }
    print_notes(measured.profile.notes);
    print_warnings(measured.warnings);
    return measured;
}

void profile_config(const Config& config, const ProfileArguments& arguments) {
    require_layers(config, "measure");
    const Model model = build_model(config);
    const std::vector<int> sizes = sizes_to_measure(arguments, config);
    const MeasuredProfile measured = measure_shown(config, model, sizes);
    const Profile& profile = measured.profile;
    Outputs outputs;
    outputs.attempt([&] {
        for (const int samples : sizes)
            print_result("{}", print_size(profile, samples));
        print_result("{}", print_rest(profile));
    });
    outputs.attempt([&] { write_profile(profile, arguments.output); });
    outputs.done();
}

std::string print_products(const MeasuredProducts& products) {
    Table table({"product [m, k, n]", "layout", "GFLOP/s", "median", "spread"});
    for (std::size_t k = 0; k < products.times.size(); ++k) {
        const auto& [product, efficiency] = products.table.rows[k];
        table.add({fmt::format("[{}, {}, {}]", product.m, product.k, product.n), std::string(name_of(product.layout)),
                   fmt::format("{:.4g}", efficiency * products.table.peak / 1e9), print_time(products.times[k].median),
                   print_time(products.times[k].spread)});
    }
    return table.print();
}

void profile_products(const Config& config, const ProfileArguments& arguments) {
    MeasuredTable measured;
    {
        ProgressLine line;
        measured = measure_products_by_shape(config, sizes_to_measure(arguments, config),
                                             std::llround(arguments.seconds * 1e9),
                                             {[&](const std::string& state) { line.show(state); }});
    }
    print_notes(measured.products.remarks);
    print_warnings(measured.warnings);
    Outputs outputs;
    outputs.attempt([&] { print_result("{}", print_products(measured.products)); });
    outputs.attempt([&] { write_file(arguments.output, text_of(measured.products.table, measured.products.remarks)); });
    outputs.done();
}

}  // namespace

Action add_profile(CLI::App& command) {
    auto arguments = std::make_shared<ProfileArguments>();
    add_config(command, arguments->config);
    command.add_option("-o,--output", arguments->output, "the profile to write, a YAML file")
        ->required()
        ->type_name("FILE");
    command
        .add_option_function<std::string>(
            "--sizes", [arguments](const std::string& list) { arguments->sizes = numbers_in(list); },
            "micro-batch sizes, as in 1,2,4; default: those of the config")
        ->type_name("N,...")
        ->check(whole_numbers(1, 65'536));
    CLI::Option* const gemm =
        command.add_flag("--gemm", arguments->products, "measure matrix products by shape, for cluster.products");
    command.add_option("--seconds", arguments->seconds, "about how long --gemm measures; default: 60")
        ->type_name("SECONDS")
        ->check(seconds_above_zero())
        ->needs(gemm);
    return [arguments] {
        const Config config = arguments->config.load();
        if (config.run.backend == RunConfig::Backend::Cuda && runs_on_ranks(config.run))
            config.fail_at("run.transport", "profile measures GPUs and NCCL in one process",
                           "start it without a launcher, or with one rank");
        std::vector<std::string> inputs = inputs_of(arguments->config, config);
        for (const std::string& measured_again : {config.cluster.profile, config.cluster.products})
            std::erase(inputs, measured_again);
        with_all_ranks(config, [&] {
            check_outputs({{"-o", arguments->output}}, inputs);
            if (arguments->products && is_first_rank())
                profile_products(config, *arguments);
            else if (arguments->products)
                return;
            else if (is_first_rank())
                profile_config(config, *arguments);
            else
                help_to_measure(config);
        });
    };
}

}  // namespace pw

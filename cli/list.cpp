// list: the models, transformers, schedules, backends, transports, kinds of devices and keys that can be chosen.
#include "cli/command.h"
#include "cli/streams.h"
#include "exec/backends.h"
#include "job/build.h"
#include "job/config/keys.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "workloads/cluster/device_kinds.h"
#include "workloads/data/data_sources.h"
#include "workloads/error.h"
#include "workloads/models/transformer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <iterator>
#include <memory>
#include <regex>
#include <string>

namespace pw {

namespace {

std::vector<std::string> model_row(const BuiltInModel& row) {
    if (row.build == nullptr)
        return {std::string(row.name), "times per stage", "-", "-"};
    Config config;
    config.workload.model = row.name;
    config.workload.options.image_size = default_image_size(row, data_sources().front());
    const Model model = build_model(config);
    double multiply_accumulates = 0;
    std::int64_t parameters = 0;
    for (const auto layer : boost::make_iterator_range(boost::vertices(model.layers))) {
        multiply_accumulates += model.layers[layer].flops_forward / 2;
        parameters += model.layers[layer].tied_to.empty() ? model.layers[layer].parameters : 0;
    }
    return {
        model.name,
        fmt::format("{}x{}x{}, {} classes", model.input.channels, model.input.height, model.input.width, model.classes),
        fmt::format("{:.2f} M", static_cast<double>(parameters) / 1e6),
        fmt::format("{:.4f} GMAC", multiply_accumulates / 1e9)};
}

void list_models() {
    Table table({"name", "input", "parameters", "forward per sample"}, true);
    for (const BuiltInModel* row : built_in_models())
        table.add(model_row(*row));
    table.add({"*.graph.txt, *.yaml", "times per layer", "-", "-"});
    print_result("{}", table.print());
}

std::string experts_in_words(const Experts& experts) {
    return fmt::format("{} of {}, width {}{}", experts.active, experts.count, experts.width,
                       experts.latent > 0 ? fmt::format(", latent {}", experts.latent) : "");
}

void list_transformers() {
    Table table(
        {"name", "parameters", "active", "hidden", "layers", "heads", "kv heads", "ffn", "experts", "vocabulary"},
        true);
    const auto billions = [](std::int64_t parameters) {
        return fmt::format("{:.3f} G", static_cast<double>(parameters) / 1e9);
    };
    for (const Transformer& model : transformer_presets()) {
        const TransformerParameters parameters = parameters_of(model);
        table.add({model.name, billions(parameters.total), billions(parameters.active), std::to_string(model.hidden),
                   std::to_string(model.layers), std::to_string(model.heads), std::to_string(model.key_value_heads),
                   std::to_string(model.ffn), model.experts ? experts_in_words(*model.experts) : "-",
                   std::to_string(model.vocabulary)});
    }
    print_result("{}", table.print());
}

void list_schedules() {
    Table table(
        {"name", "placement", "bubble of a step", "in flight on device d", "origin", "what it does", "also called"},
        true);
    for (const std::span<const Schedule> rows : {schedules(), vocabulary_schedules()})
        for (const Schedule& schedule : rows)
            table.add({std::string(schedule.name), std::string(schedule.placement.name), std::string(schedule.bubble),
                       std::string(schedule.in_flight), std::string(schedule.origin), std::string(schedule.summary),
                       std::string(schedule.aliases)});
    print_result(
        "{}\np devices, d one of them (from 0), m micro-batches, v stages per device, N micro-batches per group;\n"
        "F, B, I, W: times of all stages of a device. The bubble is a device's idle time in a step with equal\n"
        "stages; in flight are micro-batches whose activations it holds. A plan in a *.csv is a schedule, too.\n",
        table.print());
}

void list_rows(const std::vector<BackendRow>& rows) {
    Table table({"name", "status", "summary"}, true);
    for (const BackendRow& row : rows)
        table.add({std::string(row.name), row.status, std::string(row.summary)});
    print_result("{}", table.print());
}

// Returns Markdown as plain text: "see [profile.md](profile.md)" is "see profile.md".
std::string plain(const std::string& markdown) {
    static const std::regex kLink("\\[([^\\]]+)\\]\\([^)]+\\)");
    std::string text = std::regex_replace(markdown, kLink, "$1");
    std::erase(text, '`');
    return text;
}

void list_keys() {
    Table table({"key", "takes", "default", "meaning"}, true);
    for (const KeyFacts& key : config_keys())
        table.add({fmt::format("{}.{}", key.block, key.name), plain(key.takes), plain(key.fallback), plain(key.help)});
    print_result("{}", table.print());
}

void list_operations() {
    Table table({"letters", "role", "meaning"}, true);
    for (const OpFacts& facts : kOpFacts)
        table.add({std::string(facts.letters), std::string(name_of(facts.role)), std::string(facts.words)});
    print_result("{}", table.print());
}

void list_devices() {
    Table table({"name", "bf16 peak", "bf16 measured", "fp8 peak", "fp8 measured", "memory", "memory bandwidth", "link",
                 "source"},
                true);
    const auto rate = [](const RatesByPrecision& rates, const char* precision) {
        const auto found = rates.find(precision);
        return found == rates.end() ? std::string("-") : exact_flops(found->second);
    };
    for (const DeviceKindFacts& kind : device_kinds())
        table.add({kind.name, rate(kind.peak, "bf16"), rate(kind.best, "bf16"), rate(kind.peak, "fp8"),
                   rate(kind.best, "fp8"), print_bytes(kind.memory), exact_bandwidth(kind.memory_bandwidth),
                   exact_bandwidth(kind.link.bandwidth), kind.source});
    print_result("{}", table.print());
}

struct List {
    std::string_view name;
    void (*list)();
};

constexpr List kLists[] = {
    {"models", list_models},
    {"transformers", list_transformers},
    {"schedules", list_schedules},
    {"backends", [] { list_rows(backends()); }},
    {"transports", [] { list_rows(transports()); }},
    {"operations", list_operations},
    {"devices", list_devices},
    {"keys", list_keys},
    {"schema", [] { print_result("{}\n", config_schema()); }},
};

std::string names_of_lists() {
    std::string names;
    for (const List& kind : kLists)
        names += fmt::format("{}{}", names.empty() ? "" : &kind == std::end(kLists) - 1 ? " or " : ", ", kind.name);
    return names;
}

void list_kind(const std::string& name) {
    for (const List& kind : kLists)
        if (kind.name == name)
            return kind.list();
    fail("nothing to list under '{}'\n  help: list {}", name, names_of_lists());
}

}  // namespace

Action add_list(CLI::App& command) {
    auto kind = std::make_shared<std::string>();
    std::vector<std::string> names;
    for (const List& each : kLists)
        names.emplace_back(each.name);
    command.add_option("KIND", *kind, names_of_lists())
        ->required()
        ->type_name(fmt::format(":{{{}}}", fmt::join(names, ",")))
        ->option_text("REQUIRED");
    return [kind] { list_kind(*kind); };
}

}  // namespace pw

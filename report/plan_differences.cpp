#include "report/plan_differences.h"

#include "report/notes.h"
#include "report/panels.h"
#include "report/step_parts_text.h"
#include "report/table.h"
#include "schedules/trace/trace_plan.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/text/yaml.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>

namespace pw {

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;  // key and value, in the order of a config

void add_settings(const std::string& key, const Yaml& value, Settings& settings) {
    if (value.is_map()) {
        for (const auto& [name, inner] : value.entries())
            add_settings(key.empty() ? name : fmt::format("{}.{}", key, name), inner, settings);
    } else if (value.is_list()) {
        const std::vector<Yaml> items = value.items();
        if (std::all_of(items.begin(), items.end(), [](const Yaml& item) { return item.is_text(); })) {
            std::vector<std::string> texts;
            for (const Yaml& item : items)
                texts.push_back(item.text());
            settings.emplace_back(key, fmt::format("[{}]", fmt::join(texts, ", ")));
            return;
        }
        for (std::size_t item = 0; item < items.size(); ++item)
            add_settings(fmt::format("{}[{}]", key, item), items[item], settings);
    } else if (value.present()) {
        settings.emplace_back(key, value.text());
    }
}

Settings settings_of(const Trace& trace) {
    Settings settings;
    if (!trace.config.empty())
        add_settings("", Yaml::parse(std::make_shared<Source>("the config of a trace", trace.config)), settings);
    return settings;
}

std::vector<ConfigDifference> differing_settings(const Settings& first, const Settings& second) {
    const std::map<std::string, std::string> in_first(first.begin(), first.end()),
        in_second(second.begin(), second.end());
    std::vector<ConfigDifference> differences;
    for (const auto& [key, value] : first) {
        const auto other = in_second.find(key);
        if (other == in_second.end() || other->second != value)
            differences.push_back({key, value, other == in_second.end() ? "" : other->second});
    }
    for (const auto& [key, value] : second)
        if (!in_first.contains(key))
            differences.push_back({key, "", value});
    return differences;
}

// The makespan of a device in parts.
struct StepShare {
    const char* name;   // in JSON
    const char* words;  // in tables
    Ns (*time)(const DeviceMetrics& device);
};
constexpr StepShare kShares[] = {
    {"computing_ns", "computing", [](const DeviceMetrics& device) { return device.busy; }},
    {"sums_ns", "sums of gradients", [](const DeviceMetrics& device) { return device.sums; }},
    {"updates_ns", "updates", [](const DeviceMetrics& device) { return device.updates; }},
    {"transfers_ns", "waiting for transfers", [](const DeviceMetrics& device) { return device.exposed_communication; }},
    {"idle_ns", "other idle time",
     [](const DeviceMetrics& device) {
         return device.idle - device.sums - device.updates - device.exposed_communication;
     }},
};

Ns mean_share(const Report& report, const StepShare& share) {
    const std::vector<DeviceMetrics>& devices = report.metrics.devices;
    Ns sum = 0;
    for (const DeviceMetrics& device : devices)
        sum += share.time(device);
    return devices.empty() ? 0 : sum / std::ssize(devices);
}

double relative_change(double before, double after) {
    return before > 0 ? after / before - 1 : std::numeric_limits<double>::quiet_NaN();
}

std::string config_table(const PlanDifferences& differences) {
    if (differences.config.empty())
        return "";
    const auto shown = [](const std::string& value) { return value.empty() ? std::string("-") : value; };
    Table table({"key of the config", differences.first.name, differences.second.name}, true);
    for (const ConfigDifference& one : differences.config)
        table.add({one.key, shown(one.first), shown(one.second)});
    return table.print() + "\n";
}

std::string numbers_table(const PlanDifferences& differences) {
    const Report &first = differences.first.report, &second = differences.second.report;
    const Metrics &a = first.metrics, &b = second.metrics;
    Table table({"", differences.first.name, differences.second.name, "difference"});
    const auto add = [&](const std::string& name, double before, double after, auto print) {
        table.add({name, print(before), print(after), print_signed_percent(relative_change(before, after))});
    };
    const auto time = [](double value) { return print_time(static_cast<Ns>(value)); };
    const auto size = [](double value) { return print_bytes(static_cast<Bytes>(value)); };
    add("step time", static_cast<double>(a.step_time), static_cast<double>(b.step_time), time);
    if (const std::int64_t before = samples_of_step(a), after = samples_of_step(b); before != after)
        table.add({"samples per step", std::to_string(before), std::to_string(after), ""});
    add("samples/s", a.samples_per_second, b.samples_per_second, [](double value) { return print_rate(value, false); });
    if (first.cluster && second.cluster) {
        add("tokens/s", first.cluster->tokens_per_second, second.cluster->tokens_per_second,
            [](double value) { return print_rate(value, true); });
        table.add({"MFU", print_percent(first.cluster->utilisation), print_percent(second.cluster->utilisation), ""});
    }
    table.add({"bubble rate", print_percent(a.bubble_rate), print_percent(b.bubble_rate), ""});
    for (std::size_t device = 0; device < std::max(a.devices.size(), b.devices.size()); ++device) {
        const std::string name = fmt::format("peak memory, device {}",
                                             device < a.devices.size() ? first.names[device] : second.names[device]);
        if (device < std::min(a.devices.size(), b.devices.size()))
            add(name, static_cast<double>(a.devices[device].peak_memory),
                static_cast<double>(b.devices[device].peak_memory), size);
        else if (device < a.devices.size())
            table.add({name, print_bytes(a.devices[device].peak_memory), "-", ""});
        else
            table.add({name, "-", print_bytes(b.devices[device].peak_memory), ""});
    }
    return table.print() + "\n";
}

std::string parts_table(const PlanDifferences& differences) {
    const NamedReport &first = differences.first, &second = differences.second;
    if (first.report.cluster && first.report.cluster->step && second.report.cluster && second.report.cluster->step)
        return print_differences({first.name, *first.report.cluster->step},
                                 {{second.name, *second.report.cluster->step}});
    Table table({"part of the step, mean of devices", first.name, second.name, "difference"});
    const auto add = [&](const char* words, Ns before, Ns after) {
        if (before != 0 || after != 0)
            table.add({words, print_time(before), print_time(after), print_signed_time(after - before)});
    };
    for (const StepShare& share : kShares)
        add(share.words, mean_share(first.report, share), mean_share(second.report, share));
    add("makespan", first.report.metrics.makespan, second.report.metrics.makespan);
    return table.print();
}

Json json_of_side(const NamedReport& side) {
    Json json = {{"name", side.name}};
    json.update(to_json(side.report));
    json.erase("schema_version");
    for (const StepShare& share : kShares)
        json["parts"][share.name] = mean_share(side.report, share);
    return json;
}

}  // namespace

namespace {

// Returns whether both sides are predictions of plans that train the same model on the same cluster.
bool are_alternatives(const PlanDifferences& differences) {
    const Report &first = differences.first.report, &second = differences.second.report;
    const auto is_band_of = [](const Report& report) { return report.cluster && report.cluster->band != nullptr; };
    const auto is_shared = [](const ConfigDifference& one) {
        return one.key.starts_with("workload.") || one.key.starts_with("cluster.") ||
               one.key.starts_with("training.") || one.key.starts_with("calibration.");
    };
    return is_band_of(first) && is_band_of(second) &&
           samples_of_step(first.metrics) == samples_of_step(second.metrics) &&
           std::ranges::none_of(differences.config, is_shared);
}

std::string told_apart_text(const PlanDifferences& differences) {
    if (!differences.are_told_apart)
        return "";
    return fmt::format(
        "the steps differ by {} than the 80 % band of a difference, {}: these plans can{} be told apart\n",
        *differences.are_told_apart ? "more" : "no more", print_percent(difference_band().factor - 1),
        *differences.are_told_apart ? "" : "not");
}

}  // namespace

PlanDifferences differences_of(NamedReport first, NamedReport second) {
    PlanDifferences differences{std::move(first), std::move(second)};
    const Settings before = settings_of(differences.first.report.trace),
                   after = settings_of(differences.second.report.trace);
    if (!before.empty() && !after.empty())
        differences.config = differing_settings(before, after);
    if (are_alternatives(differences))
        differences.are_told_apart =
            told_apart(differences.first.report.metrics.step_time, differences.second.report.metrics.step_time);
    return differences;
}

std::string different_plans(const Report& predicted, const Report& measured) {
    const Trace &expected = predicted.trace, &found = measured.trace;
    if (expected.plan_hash == found.plan_hash)
        return "";
    if (found.schedule == kForeign && expected.schedule != kForeign && !expected.asynchronous)
        try {
            (void)as_plan_of(found, expected);
            return "";
        } catch (const Error& error) {
            return first_line(error);
        }
    return fmt::format("these are different plans: {} ({}) and {} ({})", expected.plan_hash, expected.schedule,
                       found.plan_hash, found.schedule);
}

Json to_json(const PlanDifferences& differences) {
    const Metrics &a = differences.first.report.metrics, &b = differences.second.report.metrics;
    Json config = Json::array();
    for (const ConfigDifference& one : differences.config)
        config.push_back({{"key", one.key}, {"first", one.first}, {"second", one.second}});
    return {{"schema_version", 1},
            {"config", std::move(config)},
            {"told_apart", differences.are_told_apart ? Json(*differences.are_told_apart) : Json(nullptr)},
            {"step_time_change", relative_change(static_cast<double>(a.step_time), static_cast<double>(b.step_time))},
            {"samples_per_second_change", relative_change(a.samples_per_second, b.samples_per_second)},
            {"plans", {json_of_side(differences.first), json_of_side(differences.second)}}};
}

std::string to_text(const PlanDifferences& differences) {
    return config_table(differences) + numbers_table(differences) + parts_table(differences) +
           told_apart_text(differences);
}

void plot_differences(const PlanDifferences& differences, const std::string& file, const View& view) {
    const Trace first = drawn_part_of(differences.first.report), second = drawn_part_of(differences.second.report);
    const auto panel = [&](const NamedReport& side, const Trace& drawn) {
        Panel made = drawn_panel(side.report, drawn, file);
        made.title = side.name + ": " + made.title;
        return made;
    };
    plot({panel(differences.first, first), panel(differences.second, second)}, file, view);
}

}  // namespace pw

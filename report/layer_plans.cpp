// What is said of found plans of layer graphs.
#include "job/build.h"
#include "job/plan.h"
#include "report/layouts.h"
#include "report/predict.h"
#include "report/search_words.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace pw {

namespace {

// When the search was stopped, what is not known stays so.
std::string bubble_of(const PlanSearch& search, const FoundPlan& plan) {
    if (plan.bubble_rate)
        return print_percent(*plan.bubble_rate);
    if (&plan == search.result.best())
        return print_percent(metrics_of(predict(*search.best)).bubble_rate);
    if (search.result.stop == SearchStop::Time || search.result.stop == SearchStop::Caller)
        return "-";
    return print_percent(metrics_of(predict(quiet_job_of(search, plan))).bubble_rate);
}

// Returns whether two choices differ in the name of the schedule alone: their plans are the same, task by task.
bool is_same_plan(const PlanSearch& search, const FoundPlan& a, const FoundPlan& b) {
    PlanChoice renamed = a.choice;
    renamed.schedule = b.choice.schedule;
    return renamed == b.choice && a.step_time == b.step_time && a.reserved == b.reserved &&
           a.split.layers == b.split.layers && quiet_job_of(search, a).plan.order == quiet_job_of(search, b).plan.order;
}

bool is_asynchronous_plan(const PlanSearch& search, const FoundPlan& plan) {
    return schedule_named(search.problem.setup, plan.choice.schedule).asynchronous();
}

// Schedule and number of stages. With a single stage the schedule hardly matters.
std::pair<std::string, int> kind_of(const PlanChoice& choice) {
    return {choice.stages == 1 ? "" : choice.schedule, choice.stages};
}

// Returns the best plan of each kind, the best first. A plan that several kinds have is in one row.
std::vector<PlanRow> rows_of_kinds(const PlanSearch& search, std::size_t most) {
    std::vector<PlanRow> rows;
    std::set<std::pair<std::string, int>> known;
    for (const FoundPlan& plan : search.result.plans) {
        if (!plan.fits)
            break;
        if (!known.insert(kind_of(plan.choice)).second)
            continue;
        const auto same = std::find_if(rows.begin(), rows.end(),
                                       [&](const PlanRow& row) { return is_same_plan(search, *row.plan, plan); });
        if (same != rows.end())
            same->also.push_back(plan.choice.schedule);
        else if (rows.size() == most)
            break;
        else
            rows.push_back({&plan, {}});
    }
    return rows;
}

std::string layer_table(const PlanSearch& search, const std::vector<PlanRow>& rows) {
    const Bytes limit = memory_of_all(search.problem.setup);
    Table table(
        {"best of each kind", "step", "gap", "bubble", memory_header("memory", limit), "first layers of the stages"});
    for (const auto& [found, also] : rows) {
        const FoundPlan& plan = *found;
        std::string stages;
        for (const std::vector<int>& layers : plan.split.layers)
            stages += (stages.empty() ? "" : " | ") + search.problem.model.layers[layers.front()].name;
        table.add({print(plan.choice) + (is_asynchronous_plan(search, plan) ? " (asynchronous)" : "") +
                       (also.empty() ? "" : fmt::format(" (also {})", fmt::join(also, ", "))),
                   print_time(plan.step_time), print_percent(gap_of(plan.step_time, plan.lower_bound)),
                   bubble_of(search, plan), print_bytes_as(plan.most_reserved(), limit), stages});
    }
    return table.print();
}

// "0-7 16": neighbours as a range.
std::string numbers_text(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
            ++last;
        text += fmt::format("{}{}", text.empty() ? "" : " ", numbers[first]);
        if (last > first)
            text += fmt::format("{}{}", last > first + 1 ? "-" : " ", numbers[last]);
    }
    return text;
}

std::string stages_text(const PlanSearch& search) {
    const FoundPlan& plan = *search.result.best();
    const Job& job = *search.best;
    const Bytes limit = memory_of_all(search.problem.setup);
    Table table({"stage", "device", "layers", "first", "last", "time", "memory of the device"});
    for (int stage = 0; stage < plan.choice.stages; ++stage) {
        const std::vector<int>& layers = plan.split.layers[stage];
        const LayerGraph& graph = search.problem.model.layers;
        std::vector<int> devices;
        Bytes memory = 0;
        for (const int device : job.plan.shape.devices_of(stage)) {
            devices.push_back(plan.choice.devices[device]);
            memory = std::max(memory, plan.reserved[device]);
        }
        table.add({fmt::format("{}{}", stage,
                               stage < plan.choice.recomputed  ? " (recomputed)"
                               : stage < plan.choice.offloaded ? " (offloaded)"
                                                               : ""),
                   numbers_text(devices), std::to_string(layers.size()), graph[layers.front()].name,
                   graph[layers.back()].name, print_time(time_of_passes(job.costs.stage[stage], job)),
                   print_bytes_as(memory, limit)});
    }
    return table.print();
}

std::vector<std::string> short_parts(const PlanChoice& choice) {
    const bool is_data_parallel = choice.is_data_parallel();
    return {is_data_parallel ? "data parallel" : choice.schedule,
            fmt::format("{}\u00d7{}", choice.micro_batches, choice.micro_batch_size),
            is_data_parallel ? "" : fmt::format("{} stage{}", choice.stages, choice.stages == 1 ? "" : "s"),
            print_variant(choice)};
}

// What cuts at other places make of the best choice.
std::string other_cuts_text(const PlanSearch& search) {
    if (!search.other_cuts)
        return "";
    const Ns best = search.result.best()->step_time, other = search.other_cuts->step_time;
    const double change = static_cast<double>(other) / static_cast<double>(best) - 1;
    const bool are_whole = search.problem.setup.pipeline.cut_at == PipelineConfig::CutAt::Blocks;
    return fmt::format("the same choice cut {} takes {}, {} {} (pipeline.cuts: {})\n",
                       are_whole ? "at any layers" : "between blocks", print_time(other),
                       print_percent(std::abs(change)), change < 0 ? "less" : "more", are_whole ? "layers" : "blocks");
}

std::string split_spec_text(const SplitSpec& spec) {
    std::string text = spec.text.empty() ? "" : fmt::format("PyTorch split_spec: {}\n", spec.text);
    if (!spec.inside.empty())
        text += fmt::format("stages begin inside blocks: {}\n", fmt::join(spec.inside, ", "));
    if (!spec.no_modules.empty())
        text += fmt::format("no PyTorch split_spec: {} {} of the model in PyTorch\n", fmt::join(spec.no_modules, ", "),
                            spec.no_modules.size() == 1 ? "is no module" : "are no modules");
    return text;
}

std::string layer_counts(const PlanSearch& search) {
    const SearchResult& result = search.result;
    return fmt::format("{} of {} choices tried, {} fit{}, {} plans simulated", result.plans.size(), result.choices,
                       result.fitting, result.fitting == 1 ? "s" : "", result.candidates);
}

std::string layer_details(const PlanSearch& search, std::size_t) {
    const FoundPlan& best = *search.result.best();
    const WorkloadConfig& workload = search.problem.setup.workload;
    const LayerGraph& graph = search.problem.model.layers;
    std::string text = less_memory_text(dots_of(search), memory_of_all(search.problem.setup)) + stages_text(search) +
                       other_cuts_text(search);
    if (const std::string layout = megatron_layout(workload, graph, best.split); !layout.empty())
        text += fmt::format("Megatron layout: {}\n", layout);
    return text + split_spec_text(pytorch_split_spec(workload, graph, best.split));
}

Json json_of_layers(const PlanSearch& search, const FoundPlan& plan) {
    return {{"plan", print(plan.choice)},
            {"schedule", plan.choice.schedule},
            {"asynchronous", is_asynchronous_plan(search, plan)},
            {"stages", plan.choice.stages},
            {"devices", plan.choice.devices.size()},
            {"micro_batches", plan.choice.micro_batches},
            {"micro_batch_size", plan.choice.micro_batch_size},
            {"step_time_ns", plan.step_time},
            {"lower_bound_ns", plan.may_fit ? Json(plan.lower_bound) : Json(nullptr)},
            {"gap", plan.may_fit ? Json(gap_of(plan.step_time, plan.lower_bound)) : Json(nullptr)},
            {"reserved_memory_bytes", plan.most_reserved()},
            {"fits", plan.fits}};
}

void complete_best_layers(const PlanSearch& search, Json& json) {
    const FoundPlan& best = *search.result.best();
    const WorkloadConfig& workload = search.problem.setup.workload;
    const LayerGraph& graph = search.problem.model.layers;
    json["bubble_rate"] = best.bubble_rate ? *best.bubble_rate : metrics_of(predict(*search.best)).bubble_rate;
    json["megatron_layout"] = megatron_layout(workload, graph, best.split);
    json["pytorch_split_spec"] = pytorch_split_spec(workload, graph, best.split).text;
}

void complete_layers(const PlanSearch& search, Json& json) {
    json["every_cut"] = search.result.every_cut;
    json["every_choice"] = search.result.every_choice;
    json["other_cuts_step_time_ns"] = search.other_cuts ? Json(search.other_cuts->step_time) : Json(nullptr);
}

[[noreturn]] void refuse_layers(const PlanSearch& search) {
    const SearchResult& result = search.result;
    if (!result.shortage)
        fail_with(ExitCode::Infeasible,
                  "no schedule of the search can use any of the splits that were tried\n  help: search "
                  "other schedules (search.schedules) or numbers of stages (search.stages)");
    const Shortage& shortage = *result.shortage;
    fail_with(ExitCode::Infeasible,
              "{}{}: in the closest one the device of stage {} needs {} ({} bytes) but has {} ({} bytes)\n  "
              "help: raise cluster.memory, or search smaller micro-batches (search.micro_batch_sizes), other schedules "
              "(search.schedules) or recomputation (search.recompute: auto)",
              result.none_fits ? "no plan fits" : "no plan was found that fits",
              result.stop == SearchStop::Time     ? " before the time limit"
              : result.stop == SearchStop::Memory ? " within the memory limit"
                                                  : "",
              shortage.stage, print_bytes_as(shortage.needs, shortage.has), shortage.needs,
              print_bytes_as(shortage.has, shortage.has), shortage.has);
}

}  // namespace

const SearchWords kLayerPlans = {.rows = rows_of_kinds,
                                 .table = layer_table,
                                 .counts = layer_counts,
                                 .rate = [](const PlanSearch&) { return std::string(); },
                                 .details = layer_details,
                                 .short_parts = short_parts,
                                 .json_of_plan = json_of_layers,
                                 .complete_best = complete_best_layers,
                                 .complete = complete_layers,
                                 .refuse = refuse_layers};

}  // namespace pw

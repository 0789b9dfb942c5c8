// What is said of the best plan: tables and lines, JSON, a config, a chart.
#include "report/plan_search.h"

#include "job/build.h"
#include "job/plan.h"
#include "report/layouts.h"
#include "report/predict.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

namespace pw {

namespace {

// Returns the time of the passes that the plan runs.
Ns time_of(const StageCost& cost, const Job& job) {
    if (!schedule_named(job.setup.pipeline.schedule).trains)
        return cost.forward;
    return cost.forward + (splits_backward(job.plan) ? cost.backward_input + cost.backward_weight : cost.backward);
}

}  // namespace

Bytes common_limit(const std::vector<DeviceConfig>& devices) {
    for (const DeviceConfig& device : devices)
        if (device.memory != devices.front().memory)
            return kUnlimited;
    return devices.empty() ? kUnlimited : devices.front().memory;
}

namespace {

Json stages_json(const Job& job, const FoundPlan& plan) {
    Json stages = Json::array();
    for (int stage = 0; stage < plan.choice.stages; ++stage) {
        Json names = Json::array();
        for (const int layer : plan.split.layers[stage])
            names.push_back(job.model->layers[layer].name);
        const std::vector<int> devices = job.plan.shape.devices_of(stage);
        stages.push_back({{"layers", std::move(names)},
                          {"time_ns", time_of(job.costs.stage[stage], job)},
                          {"memory_bytes", plan.reserved[devices.front()]},
                          {"device", plan.choice.devices[devices.front()]},
                          {"replicas", devices.size()},
                          {"recompute", stage < plan.choice.recomputed}});
    }
    return stages;
}

// What the text and the YAML say about the proof.
std::string proof_of(const SearchResult& result) {
    const FoundPlan& best = *result.best();
    if (result.lower_bound >= best.step_time)
        return "no plan of this search is faster";
    std::string where = result.every_cut ? "" : "; only cuts of the forward order were tried";
    if (!result.every_choice)
        where += "; not every order of the devices or way to share them out was tried";
    return fmt::format("no plan of this search is faster than {} (gap {}){}", print_time(result.lower_bound),
                       print_percent(result.gap()), where);
}

// The command says once what there is to say about the best plan.
Job quiet_job_of(const PlanSearch& search, const FoundPlan& plan) {
    Notices notices;
    return make_job(setup_of(search.problem, plan), plan.plan.get(), notices);
}

}  // namespace

const char* name_of(SearchStop stop) {
    return stop == SearchStop::Time     ? "time limit"
           : stop == SearchStop::Memory ? "memory limit"
           : stop == SearchStop::Caller ? "caller"
                                        : "";
}

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

// Schedule and number of stages. Of one stage the schedule hardly matters.
std::pair<std::string, int> kind_of(const PlanChoice& choice) {
    return {choice.stages == 1 ? "" : choice.schedule, choice.stages};
}

struct PlanRow {
    const FoundPlan* plan;
    std::vector<std::string> also;  // schedules that have the same plan
};

// Returns the best plan of each kind, the best first. A plan that another kind has, too, is in one row.
std::vector<PlanRow> plan_rows(const PlanSearch& search, std::size_t most) {
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

std::string plans_text(const PlanSearch& search, std::size_t most) {
    const Bytes limit = common_limit(search.problem.setup.cluster.devices);
    Table table(
        {"best of each kind", "step", "gap", "bubble", memory_header("memory", limit), "first layers of the stages"});
    for (const auto& [found, also] : plan_rows(search, most)) {
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

// "0-7 16": neighbours in one.
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
    const Bytes limit = common_limit(search.problem.setup.cluster.devices);
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
        table.add({fmt::format("{}{}", stage, stage < plan.choice.recomputed ? " (recomputed)" : ""),
                   numbers_text(devices), std::to_string(layers.size()), graph[layers.front()].name,
                   graph[layers.back()].name, print_time(time_of(job.costs.stage[stage], job)),
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

std::vector<PlanDot> dots_of(const PlanSearch& search) {
    std::vector<PlanDot> dots;
    for (const FoundPlan& plan : search.result.plans)
        dots.push_back({plan.most_reserved(), plan.step_time, plan.fits, print(plan.choice), short_parts(plan.choice)});
    return dots;
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

}  // namespace

std::string to_text(const PlanSearch& search, std::size_t most) {
    const SearchResult& result = search.result;
    const FoundPlan& best = *result.best();
    std::string text = plans_text(search, most);
    text +=
        fmt::format("{} of {} choices tried, {} fit{}, {} plans simulated{}\n\n", result.plans.size(), result.choices,
                    result.fitting, result.fitting == 1 ? "s" : "", result.candidates,
                    result.stop == SearchStop::None ? "" : fmt::format("; stopped by the {}", name_of(result.stop)));
    text += fmt::format("best: {}, step {}; {}\n{}{}", print(best.choice), print_time(best.step_time), proof_of(result),
                        less_memory_text(dots_of(search), common_limit(search.problem.setup.cluster.devices)),
                        stages_text(search));
    text += other_cuts_text(search);
    const WorkloadConfig& workload = search.problem.setup.workload;
    if (const std::string layout = megatron_layout(workload, search.problem.model.layers, best.split); !layout.empty())
        text += fmt::format("Megatron layout: {}\n", layout);
    return text + split_spec_text(pytorch_split_spec(workload, search.problem.model.layers, best.split));
}

namespace {

Json json_of_best(const PlanSearch& search) {
    const FoundPlan& best = *search.result.best();
    const WorkloadConfig& workload = search.problem.setup.workload;
    const LayerGraph& graph = search.problem.model.layers;
    return {{"schedule", best.choice.schedule},
            {"devices", best.choice.devices.size()},
            {"micro_batches", best.choice.micro_batches},
            {"micro_batch_size", best.choice.micro_batch_size},
            {"step_time_ns", best.step_time},
            {"bubble_rate", best.bubble_rate ? *best.bubble_rate : metrics_of(predict(*search.best)).bubble_rate},
            {"reserved_memory_bytes", best.most_reserved()},
            {"stages", stages_json(*search.best, best)},
            {"megatron_layout", megatron_layout(workload, graph, best.split)},
            {"pytorch_split_spec", pytorch_split_spec(workload, graph, best.split).text}};
}

Json json_of_plan(const PlanSearch& search, const FoundPlan& plan) {
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

}  // namespace

Json to_json(const PlanSearch& search) {
    const SearchResult& result = search.result;
    Json json = {{"schema_version", 1}, {"objective_name", "makespan"}};
    json["every_cut"] = result.every_cut;
    json["every_choice"] = result.every_choice;
    if (const FoundPlan* best = result.best()) {
        json["best"] = json_of_best(search);
        json["objective"] = static_cast<double>(best->step_time) / 1e9;
        json["objective_ns"] = best->step_time;
        json["lower_bound_ns"] = result.lower_bound;
        json["gap"] = result.gap();
    } else {
        const Shortage shortage = result.shortage.value_or(Shortage{});
        json["best"] = nullptr;
        json["infeasible"] = {{"stage", shortage.stage},
                              {"needs_bytes", shortage.needs},
                              {"has_bytes", shortage.has},
                              {"proven", result.none_fits}};
    }
    json["other_cuts_step_time_ns"] = search.other_cuts ? Json(search.other_cuts->step_time) : Json(nullptr);
    json["choices"] = result.choices;
    json["tried"] = result.plans.size();
    json["fitting"] = result.fitting;
    json["left_out"] = result.left_out;
    json["stopped_by"] = result.stop == SearchStop::None ? Json(nullptr) : Json(name_of(result.stop));
    json["candidates"] = result.candidates;
    json["seconds"] = search.seconds;
    json["notes"] = result.notes;
    json["plans"] = Json::array();
    for (const FoundPlan& plan : result.plans)
        json["plans"].push_back(json_of_plan(search, plan));
    return json;
}

namespace {

// Blocks that say what is said without them are left out.
std::string without_defaults(const std::string& yaml) {
    std::string text = yaml;
    const std::string plain = print_setup({});
    for (const char* block : {"training:\n", "run:\n", "transfer:\n"}) {
        const auto block_of = [&](const std::string& all) {
            const std::size_t begin = all.find(std::string("\n") + block) + 1;
            std::size_t end = all.find('\n', begin) + 1;
            while (end < all.size() && all[end] == ' ')
                end = all.find('\n', end) + 1;
            return all.substr(begin, end - begin);
        };
        if (const std::string own = block_of(text); own == block_of(plain))
            text.erase(text.find(std::string("\n") + block) + 1, own.size());
    }
    return text;
}

}  // namespace

std::string yaml_for(const Setup& setup, const std::string& file) {
    if (file.empty())
        return without_defaults(print_setup(setup));
    const auto folder = std::filesystem::absolute(file).parent_path();
    return without_defaults(print_setup(with_paths_from(setup, folder.string())));
}

std::size_t rows_of(const PlanSearch& search, std::size_t most) { return plan_rows(search, most).size(); }

Job job_in_row(const PlanSearch& search, std::size_t row) {
    return quiet_job_of(search, *plan_rows(search, row).at(row - 1).plan);
}

std::string place_of_row(std::size_t row, Ns best) {
    return fmt::format("row {} of the search's table, the best plan takes {}", row, print_time(best));
}

std::string best_config_yaml(const PlanSearch& search, const std::string& file, std::size_t row) {
    const SearchSetup& setup = search.problem.setup;
    const FoundPlan& plan = row == 1 ? *search.result.best() : *plan_rows(search, row).at(row - 1).plan;
    const Setup of_plan = setup_of(search.problem, plan);
    const std::int64_t profile_batch = setup.workload.profile_batch;
    const std::string batch = profile_batch == 0 ? "" : fmt::format("search:\n  profile_batch: {}\n", profile_batch);
    return fmt::format("# Found by `pipewright search`: {}.\n# Predicted step {}, reserved memory {}; {}.\n{}{}",
                       print(plan.choice), print_time(plan.step_time),
                       print_bytes_as(plan.most_reserved(), common_limit(of_plan.cluster.devices)),
                       row == 1 ? proof_of(search.result) : place_of_row(row, search.result.best()->step_time),
                       yaml_for(of_plan, file), batch);
}

Chart chart_of(const PlanSearch& search) {
    return chart_of(dots_of(search), common_limit(search.problem.setup.cluster.devices));
}

}  // namespace pw

#include "cli/search.h"
#include "cli/table.h"
#include "viz/plot.h"
#include "workloads/profiled_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>

namespace pw {

namespace {

char letter_of(const Layer& layer) {
    if (is_loss(layer.kind))
        return 'L';
    return layer.name.starts_with("embed") ? 'E' : 't';
}

std::string run_of(char letter, int length) {
    return length < 3 ? std::string(static_cast<std::size_t>(length), letter) : fmt::format("{}*{}", letter, length);
}

Ns time_of(const StageCost& cost, bool split_backward) {
    return cost.forward + (split_backward ? cost.backward_input + cost.backward_weight : cost.backward);
}

Json stages_json(const Pipeline& pipeline, const FoundPlan& plan) {
    Json stages = Json::array();
    for (int stage = 0; stage < plan.choice.stages; ++stage) {
        Json names = Json::array();
        for (const int layer : plan.split.layers[stage])
            names.push_back(pipeline.model->layers[layer].name);
        const std::vector<int> devices = pipeline.plan.shape.devices_of(stage);
        stages.push_back({{"layers", std::move(names)},
                          {"time_ns", time_of(pipeline.costs.stage[stage], splits_backward(pipeline.plan))},
                          {"memory_bytes", plan.peaks[devices.front()]},
                          {"device", plan.choice.devices[devices.front()]},
                          {"replicas", devices.size()},
                          {"recompute", stage < plan.choice.recomputed}});
    }
    return stages;
}

// What the table, the JSON and the YAML say about the proof.
std::string proof_of(const SearchResult& result) {
    const FoundPlan& best = *result.best();
    if (result.lower_bound >= best.step_time)
        return "no plan of this search is faster";
    const std::string where = result.every_cut ? "" : "; only cuts of the forward order were tried";
    return fmt::format("no plan of this search is faster than {} (gap {}){}", print_time(result.lower_bound),
                       print_percent(result.gap()), where);
}

std::vector<const FoundPlan*> pareto_front(const SearchResult& result) {
    std::vector<const FoundPlan*> front;
    for (const FoundPlan& plan : result.plans)
        if (plan.fits)
            front.push_back(&plan);
    std::stable_sort(front.begin(), front.end(), [](const FoundPlan* a, const FoundPlan* b) {
        return std::pair(a->peak(), a->step_time) < std::pair(b->peak(), b->step_time);
    });
    Ns least = std::numeric_limits<Ns>::max();
    std::erase_if(front, [&](const FoundPlan* plan) {
        const bool dominated = plan->step_time >= least;
        least = std::min(least, plan->step_time);
        return dominated;
    });
    return front;
}

}  // namespace

std::string megatron_layout(const LayerGraph& graph, const StageSplit& split) {
    if (!starts_of_ranges(split))
        return {};
    std::string layout;
    for (const std::vector<int>& layers : split.layers) {
        layout += layout.empty() ? "" : "|";
        int length = 0;
        for (std::size_t at = 0; at < layers.size(); ++at) {
            ++length;
            const char letter = letter_of(graph[layers[at]]);
            if (at + 1 < layers.size() && letter_of(graph[layers[at + 1]]) == letter)
                continue;
            layout += run_of(letter, length);
            length = 0;
        }
    }
    return layout;
}

std::string pytorch_split_spec(const LayerGraph& graph, const StageSplit& split) {
    const auto starts = starts_of_ranges(split);
    if (!starts)
        return {};
    std::string spec;
    for (const int cut : *starts)
        spec += fmt::format("{}\"{}\": SplitPoint.BEGINNING", spec.empty() ? "" : ", ", graph[cut].name);
    return "{" + spec + "}";
}

Config config_of(const SearchProblem& problem, const FoundPlan& plan) {
    Config config = config_of(problem.config, plan.choice);
    set_split(config.pipeline, problem.model.layers, plan.split);
    config.search = {};
    config.search.profile_batch = problem.config.search.profile_batch;
    config.search.mini_batch = problem.config.search.mini_batch;
    config.sweep.clear();
    config.yaml = print_config(config);
    return config;
}

namespace {

// The command says once what there is to say about the best plan.
Pipeline quiet_pipeline_of(Config config) {
    std::vector<std::string> notices;
    return pipeline_of(std::move(config), &notices);
}

std::string print_plans(const SearchProblem& problem, const SearchResult& result, std::size_t most) {
    Table table({"plan", "step", "gap", "bubble", "peak memory", "first layers of the stages"});
    std::size_t shown = 0;
    for (const FoundPlan& plan : result.plans) {
        if (shown == most || !plan.fits)
            break;
        ++shown;
        const Metrics metrics = metrics_of(predict(quiet_pipeline_of(config_of(problem, plan))));
        std::string stages;
        for (const std::vector<int>& layers : plan.split.layers)
            stages += (stages.empty() ? "" : " | ") + problem.model.layers[layers.front()].name;
        table.add({print(plan.choice), print_time(metrics.step_time),
                   print_percent(gap_of(plan.step_time, plan.lower_bound)), print_percent(metrics.bubble_rate),
                   print_bytes(plan.peak()), stages});
    }
    return table.print();
}

std::string print_stages(const SearchProblem& problem, const FoundPlan& plan) {
    const Pipeline pipeline = quiet_pipeline_of(config_of(problem, plan));
    Table table({"stage", "device", "layers", "first", "last", "time", "memory of the device"});
    for (int stage = 0; stage < plan.choice.stages; ++stage) {
        const std::vector<int>& layers = plan.split.layers[stage];
        const LayerGraph& graph = problem.model.layers;
        std::vector<int> devices;
        Bytes memory = 0;
        for (const int device : pipeline.plan.shape.devices_of(stage)) {
            devices.push_back(plan.choice.devices[device]);
            memory = std::max(memory, plan.peaks[device]);
        }
        table.add({fmt::format("{}{}", stage, stage < plan.choice.recomputed ? " (recomputed)" : ""),
                   fmt::format("{}", fmt::join(devices, " ")), std::to_string(layers.size()),
                   graph[layers.front()].name, graph[layers.back()].name,
                   print_time(time_of(pipeline.costs.stage[stage], splits_backward(pipeline.plan))),
                   print_bytes(memory)});
    }
    return table.print();
}

}  // namespace

std::string print(const SearchProblem& problem, const SearchResult& result, std::size_t most) {
    const auto fitting =
        std::count_if(result.plans.begin(), result.plans.end(), [](const FoundPlan& plan) { return plan.fits; });
    const FoundPlan& best = *result.best();
    std::string text = print_plans(problem, result, most);
    text += fmt::format("{} of {} choices fit, {} plans simulated\n\n", fitting, result.choices, result.candidates);
    text += fmt::format("best: {}, step {}; {}\n{}", print(best.choice), print_time(best.step_time), proof_of(result),
                        print_stages(problem, best));
    if (const std::string layout = megatron_layout(problem.model.layers, best.split); !layout.empty())
        text += fmt::format("Megatron layout: {}\nPyTorch split_spec: {}\n", layout,
                            pytorch_split_spec(problem.model.layers, best.split));
    return text;
}

Json json_of(const SearchProblem& problem, const SearchResult& result, double seconds) {
    Json json = {{"schema_version", 1}, {"objective_name", "makespan"}};
    json["every_cut"] = result.every_cut;
    if (const FoundPlan* best = result.best()) {
        const Pipeline pipeline = quiet_pipeline_of(config_of(problem, *best));
        Json plan = {{"schedule", best->choice.schedule},
                     {"devices", best->choice.devices.size()},
                     {"micro_batches", best->choice.micro_batches},
                     {"micro_batch_size", best->choice.micro_batch_size},
                     {"step_time_ns", best->step_time},
                     {"bubble_rate", metrics_of(predict(pipeline)).bubble_rate},
                     {"peak_memory_bytes", best->peak()},
                     {"stages", stages_json(pipeline, *best)},
                     {"megatron_layout", megatron_layout(problem.model.layers, best->split)},
                     {"pytorch_split_spec", pytorch_split_spec(problem.model.layers, best->split)}};
        json["best"] = std::move(plan);
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
    json["choices"] = result.choices;
    json["candidates"] = result.candidates;
    json["seconds"] = seconds;
    json["plans"] = Json::array();
    for (const FoundPlan& plan : result.plans)
        json["plans"].push_back({{"plan", print(plan.choice)},
                                 {"step_time_ns", plan.step_time},
                                 {"lower_bound_ns", plan.may_fit ? Json(plan.lower_bound) : Json(nullptr)},
                                 {"peak_memory_bytes", plan.peak()},
                                 {"fits", plan.fits}});
    return json;
}

std::string print_yaml(const SearchProblem& problem, const SearchResult& result, const std::string& file) {
    const FoundPlan& best = *result.best();
    Config config = config_of(problem, best);
    const auto folder = std::filesystem::absolute(file).parent_path();
    const auto from_folder = [&](std::string& path) {
        if (!path.empty())
            path = std::filesystem::path(path).lexically_proximate(folder).string();
    };
    from_folder(config.cluster.profile);
    from_folder(config.workload.path);
    if (model_file(config.workload.model) != ModelFile::None)
        from_folder(config.workload.model);
    const SearchConfig& search = problem.config.search;
    const std::string batch = search.profile_batch == search.mini_batch
                                  ? ""
                                  : fmt::format("search:\n  profile_batch: {}\n", search.profile_batch);
    return fmt::format("# Found by `pipewright search`: {}.\n# Predicted step {}, peak memory {}; {}.\n{}{}",
                       print(best.choice), print_time(best.step_time), print_bytes(best.peak()), proof_of(result),
                       print_config(config), batch);
}

void plot_search(const SearchResult& result, const std::string& file) {
    Curve all{"every choice at its best split", {}, {}, Curve::Style::Dots};
    Curve misfits{"too large", {}, {}, Curve::Style::Crosses};
    for (const FoundPlan& plan : result.plans) {
        Curve& curve = plan.fits ? all : misfits;
        curve.x.push_back(static_cast<double>(plan.peak()));
        curve.values.push_back(static_cast<double>(plan.step_time));
    }
    Curve front{"none is both faster and smaller", {}, {}, Curve::Style::Steps};
    for (const FoundPlan* plan : pareto_front(result)) {
        front.x.push_back(static_cast<double>(plan->peak()));
        front.values.push_back(static_cast<double>(plan->step_time));
        front.labels.push_back(fmt::format("{} {}, {} x {}", plan->choice.schedule, plan->choice.stages,
                                           plan->choice.micro_batches, plan->choice.micro_batch_size));
    }
    Chart chart{{}, {"peak memory", Quantity::Size}, {"step time", Quantity::Time}};
    for (Curve* curve : {&all, &misfits, &front})
        if (!curve->values.empty())
            chart.curves.push_back(std::move(*curve));
    plot_chart(chart, file);
}

}  // namespace pw

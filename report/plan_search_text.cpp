// What is said of found plans: tables and lines, JSON, a config, a chart.
#include "job/cost_source.h"
#include "job/job.h"
#include "job/plan.h"
#include "report/calibration.h"
#include "report/plan_search.h"
#include "report/search_words.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace pw {

namespace {

// The unit of memory is the unit of the devices' memory.
std::string print_memory(Bytes bytes, const Setup& setup) {
    return print_bytes_as(bytes, cost_source_of(setup).has_groups ? setup.parallel.memory : memory_of_all(setup));
}

Json stages_json(const Job& job, const FoundPlan& plan) {
    Json stages = Json::array();
    for (int stage = 0; stage < plan.choice.stages; ++stage) {
        Json names = Json::array();
        for (const int layer : job.split.layers[stage])
            names.push_back(job.model->layers[layer].name);
        const std::vector<int> devices = job.plan.shape.devices_of(stage);
        const int device = devices.front();
        const bool is_of_transformer = plan.choice.is_of_transformer();
        const Parallel& degrees = plan.choice.of_stages.empty() ? plan.choice.degrees : plan.choice.of_stages[device];
        stages.push_back(
            {{"layers", std::move(names)},
             {"time_ns", time_of_passes(job.costs.stage[stage], job)},
             {"memory_bytes", plan.reserved[device]},
             {"device", is_of_transformer ? device : plan.choice.devices[device]},
             {"replicas", devices.size() * static_cast<std::size_t>(degrees.data)},
             {"recompute", is_of_transformer ? degrees.recompute != ModuleSet{} : stage < plan.choice.recomputed},
             {"offload", stage < plan.choice.offloaded}});
    }
    return stages;
}

// What the text and the YAML say about the proof.
std::string proof_of(const PlanSearch& search) {
    const SearchResult& result = search.result;
    const FoundPlan& best = *result.best();
    if (result.lower_bound >= best.step_time)
        return "no plan of this search is faster";
    if (result.lower_bound == 0)
        return "not every plan has a bound";
    std::string where = result.every_cut ? "" : "; only cuts of the forward order were tried";
    if (!result.every_choice)
        where += "; not every order of the devices or way to share them out was tried";
    if (result.equal_bound >= best.step_time)
        where += fmt::format(", and none with {} is faster", usual_division(search.problem.setup));
    return fmt::format("no plan of this search is faster than {} (gap {}){}", print_time(result.lower_bound),
                       print_percent(result.gap()), where);
}

}  // namespace

const SearchWords& words_of(const PlanSearch& search) {
    return searches_cluster(search.problem.setup) ? kTransformerPlans : kLayerPlans;
}

Ns time_of_passes(const StageCost& cost, const Job& job) {
    if (!schedule_of(job.setup).trains)
        return cost.forward;
    return cost.forward + (splits_backward(job.plan) ? cost.backward_input + cost.backward_weight : cost.backward);
}

Job quiet_job_of(const PlanSearch& search, const FoundPlan& plan) {
    Notices notices;
    return make_job(setup_of(search.problem, plan), plan.plan.get(), notices);
}

std::vector<PlanDot> dots_of(const PlanSearch& search) {
    std::vector<PlanDot> dots;
    for (const FoundPlan& plan : search.result.plans)
        dots.push_back({plan.most_reserved(), plan.step_time, plan.fits, print(plan.choice),
                        words_of(search).short_parts(plan.choice)});
    return dots;
}

Bytes memory_of_all(const Setup& setup) {
    std::vector<Bytes> memory = setup.parallel.ranks->usable;
    if (!cost_source_of(setup).has_groups) {
        memory.clear();
        for (const DeviceConfig& device : setup.cluster.devices)
            memory.push_back(device.memory);
    }
    const bool are_alike = std::ranges::all_of(memory, [&](Bytes bytes) { return bytes == memory.front(); });
    return are_alike && !memory.empty() ? memory.front() : kUnlimited;
}

const char* name_of(SearchStop stop) {
    return stop == SearchStop::Time     ? "time limit"
           : stop == SearchStop::Memory ? "memory limit"
           : stop == SearchStop::Caller ? "caller"
                                        : "";
}

std::string to_text(const PlanSearch& search, std::size_t most) {
    const SearchResult& result = search.result;
    const FoundPlan& best = *result.best();
    const SearchWords& words = words_of(search);
    return fmt::format("{}{}{}\n\nbest: {}, step {}{}; {}\n{}", words.table(search, words.rows(search, most)),
                       words.counts(search),
                       result.stop == SearchStop::None ? "" : fmt::format("; stopped by the {}", name_of(result.stop)),
                       print(best.choice), print_time(best.step_time), words.rate(search), proof_of(search),
                       words.details(search, most));
}

Json to_json(const PlanSearch& search) {
    const SearchResult& result = search.result;
    const SearchWords& words = words_of(search);
    Json json = {{"schema_version", 1}, {"objective_name", "makespan"}};
    if (const FoundPlan* best = result.best()) {
        json["best"] = words.json_of_plan(search, *best);
        json["best"]["stages"] = stages_json(*search.best, *best);
        words.complete_best(search, json["best"]);
        json["objective"] = static_cast<double>(best->step_time) / 1e9;
        json["objective_ns"] = best->step_time;
        json["lower_bound_ns"] = result.lower_bound;
        json["gap"] = result.gap();
    } else {
        const Shortage shortage = result.shortage.value_or(Shortage{});
        json["best"] = nullptr;
        json["infeasible"] = {{"plan", result.smallest ? Json(print(*result.smallest)) : Json(nullptr)},
                              {"stage", shortage.stage},
                              {"needs_bytes", shortage.needs},
                              {"has_bytes", shortage.has},
                              {"proven", result.none_fits}};
    }
    json["choices"] = result.choices;
    json["tried"] = result.plans.size();
    json["fitting"] = result.fitting;
    json["left_out"] = result.left_out;
    json["stopped_by"] = result.stop == SearchStop::None ? Json(nullptr) : Json(name_of(result.stop));
    json["candidates"] = result.candidates;
    json["seconds"] = search.seconds;
    json["notes"] = result.notes;
    if (search.problem.setup.calibration != Calibration{})
        json["calibration"] = to_json(search.problem.setup.calibration);
    json["plans"] = Json::array();
    for (const FoundPlan& plan : result.plans)
        json["plans"].push_back(words.json_of_plan(search, plan));
    words.complete(search, json);
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

std::size_t rows_of(const PlanSearch& search, std::size_t most) { return words_of(search).rows(search, most).size(); }

namespace {

const FoundPlan& plan_in_row(const PlanSearch& search, std::size_t row) {
    return row == 1 ? *search.result.best() : *words_of(search).rows(search, row).at(row - 1).plan;
}

}  // namespace

Job job_in_row(const PlanSearch& search, std::size_t row) { return quiet_job_of(search, plan_in_row(search, row)); }

namespace {

// "# ...", where a device of the found plan has another number in the searched config. Else empty.
std::string words_on_devices(const PlanSearch& search, const FoundPlan& plan) {
    const std::vector<int>& devices = plan.choice.devices;
    bool moved = false;
    for (std::size_t device = 0; device < devices.size(); ++device)
        moved = moved || devices[device] != static_cast<int>(device);
    if (!moved || search.problem.setup.workload.transformer)
        return "";
    return fmt::format("# In the searched config its devices are, in order, {}.\n", fmt::join(devices, ", "));
}

}  // namespace

std::string best_config_yaml(const PlanSearch& search, const std::string& file, std::size_t row) {
    const FoundPlan& plan = plan_in_row(search, row);
    const Job job = quiet_job_of(search, plan);
    Setup setup = job.setup;
    set_split(setup.pipeline, job.model->layers, job.split);
    const std::int64_t profile_batch = setup.workload.profile_batch;
    const std::string batch = profile_batch == 0 ? "" : fmt::format("search:\n  profile_batch: {}\n", profile_batch);
    return fmt::format("# Found by `pipewright search`: {}.\n# Predicted step {}, reserved memory {}; {}.\n{}{}{}",
                       print(plan.choice), print_time(plan.step_time), print_memory(plan.most_reserved(), setup),
                       row == 1 ? proof_of(search)
                                : fmt::format("row {} of the search's table, the best plan takes {}", row,
                                              print_time(search.result.best()->step_time)),
                       words_on_devices(search, plan), yaml_for(setup, file), batch);
}

Chart chart_of(const PlanSearch& search) {
    return chart_of(dots_of(search), memory_of_all(search.best ? search.best->setup : search.problem.setup));
}

}  // namespace pw

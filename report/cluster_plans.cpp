#include "report/cluster_plans.h"

#include "report/plan_search.h"
#include "report/report.h"
#include "report/step_parts_text.h"
#include "report/table.h"
#include "report/training_arguments.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;

double samples_per_second(const ClusterPlans& plans, const ClusterPlan& plan) {
    return static_cast<double>(plans.setup.search.mini_batch) * 1e9 / static_cast<double>(plan.step_time);
}

ClusterRate rate_of(const ClusterPlans& plans, const ClusterPlan& plan) {
    return cluster_rate(setup_of(plans.setup, plan.choice), samples_per_second(plans, plan));
}

double seconds_of_training(const ClusterPlans& plans, const ClusterRate& rate) {
    return plans.setup.search.tokens / rate.tokens_per_second;
}

double price_of_training(const ClusterPlans& plans, const ClusterRate& rate) {
    return seconds_of_training(plans, rate) / kHour * rate.devices * plans.setup.search.price;
}

// The memory that every device has; unlimited if they differ.
Bytes memory_of_all(const Setup& setup) {
    const std::vector<Bytes>& usable = setup.parallel.ranks->usable;
    const bool are_alike = std::ranges::all_of(usable, [&](Bytes memory) { return memory == usable.front(); });
    return are_alike ? setup.parallel.memory : kUnlimited;
}

bool has_experts(const ClusterPlans& plans) { return plans.setup.workload.transformer->experts.has_value(); }

std::vector<std::string> header_of(const ClusterPlans& plans) {
    const SearchConfig& search = plans.setup.search;
    std::vector<std::string> header = {"plan", "schedule", "tensor", "pipeline", "context"};
    if (has_experts(plans))
        header.emplace_back("expert");
    for (const char* name :
         {"data", "micro-batch", "zero", "recompute", "step", "tokens/s", "MFU", "bubble", "exposed"})
        header.emplace_back(name);
    header.push_back(memory_header("memory", memory_of_all(plans.setup)));
    header.emplace_back("runs on");
    if (search.tokens > 0)
        header.emplace_back("days");
    if (search.tokens > 0 && search.price > 0)
        header.emplace_back("price");
    return header;
}

std::vector<std::string> row_of_plan(const ClusterPlans& plans, const ClusterPlan& plan, std::string name) {
    const SearchConfig& search = plans.setup.search;
    const PlanChoice& choice = plan.choice;
    const Parallel& own = choice.degrees;
    const ClusterRate rate = rate_of(plans, plan);
    std::vector<std::string> row = {
        std::move(name), choice.schedule, print_degree(choice, &Parallel::tensor),
        choice.chunks() > 1 ? fmt::format("{} x {}", own.pipeline, choice.chunks()) : std::to_string(own.pipeline),
        print_degree(choice, &Parallel::context)};
    if (has_experts(plans))
        row.push_back(std::to_string(own.expert));
    for (const int number : {own.data, choice.micro_batch_size})
        row.push_back(std::to_string(number));
    row.push_back(print_degree(choice, &Parallel::zero));
    row.push_back(print_recomputed(choice));
    row.push_back(print_time(plan.step_time));
    row.push_back(print_rate(rate.tokens_per_second, true));
    row.push_back(print_percent(rate.utilisation));
    row.push_back(print_percent(plan.bubble_rate));
    row.push_back(print_time(plan.exposed));
    row.push_back(print_bytes_as(plan.most_reserved(), plans.setup.parallel.memory) +
                  (plan.fits ? "" : " (does not fit)"));
    const std::vector<std::string> programs = programs_that_run(setup_of(plans.setup, choice));
    row.push_back(programs.empty() ? "-" : fmt::format("{}", fmt::join(programs, ", ")));
    if (search.tokens > 0)
        row.push_back(fmt::format("{:.1f}", seconds_of_training(plans, rate) / kDay));
    if (search.tokens > 0 && search.price > 0)
        row.push_back(fmt::format("{:.0f}", price_of_training(plans, rate)));
    return row;
}

double gap_of_best(const ClusterPlans& plans) {
    return gap_of(plans.result.best()->step_time, plans.result.lower_bound);
}

std::string proof_of_best(const ClusterPlans& plans) {
    const Ns bound = plans.result.lower_bound;
    if (bound >= plans.result.best()->step_time)
        return "no plan of this search is faster";
    const bool is_best_of_equal = plans.result.equal_bound >= plans.result.best()->step_time;
    return bound == 0 ? "not every plan has a bound"
                      : fmt::format("no plan of this search is faster than {} (gap {}){}", print_time(bound),
                                    print_percent(gap_of_best(plans)),
                                    is_best_of_equal ? ", and none with equal numbers of blocks is faster" : "");
}

// Choices that could be faster, but for another program.
std::string refused_text(const ClusterPlans& plans) {
    const int refused = plans.result.refused;
    return refused == 0 ? ""
                        : fmt::format("; {} {} not for {}", refused, refused == 1 ? "is" : "are",
                                      name_of(*plans.setup.search.program));
}

// Returns the hosts in the order of their stages, as "4 x h100-sxm-80, 2 x a100-sxm-40".
std::string kinds_of_hosts(const Setup& setup) {
    const ClusterRanks& ranks = *setup.parallel.ranks;
    std::vector<std::pair<std::string, int>> kinds;
    int before = -1;
    for (std::size_t rank = 0; rank < ranks.devices.size(); ++rank) {
        if (ranks.host[rank] == before)
            continue;
        before = ranks.host[rank];
        const DeviceConfig& device = ranks.devices[rank];
        const ClusterConfig& cluster = setup.cluster;
        std::string kind =
            cluster.makes.empty() ? cluster.device : cluster.makes[static_cast<std::size_t>(device.make)].device;
        if (device.speed != 1)
            kind += fmt::format(" at speed {}", device.speed);
        if (!kinds.empty() && kinds.back().first == kind)
            ++kinds.back().second;
        else
            kinds.emplace_back(std::move(kind), 1);
    }
    std::vector<std::string> parts;
    for (const auto& [kind, count] : kinds)
        parts.push_back(fmt::format("{} x {}", count, kind));
    return fmt::format("{}", fmt::join(parts, ", "));
}

// The orders of hosts that were searched, where hosts differ.
std::string hosts_text(const ClusterPlans& plans) {
    const ClusterResult& result = plans.result;
    if (result.orders + result.slow_orders + result.orders_left < 2)
        return "";
    const std::vector<int>& all = plans.setup.parallel.ranks->host;
    const std::vector<int>& used = result.best()->choice.hosts;
    const int hosts = *std::ranges::max_element(all) + 1;
    const int idle = used.empty() ? 0 : hosts - static_cast<int>(used.size());
    return fmt::format("stages on {}{}; of the orders of hosts {} {} searched, {} {} no faster by bounds{}\n",
                       kinds_of_hosts(setup_of(plans.setup, result.best()->choice)),
                       idle == 0 ? "" : fmt::format(", {} host{} idle", idle, idle == 1 ? "" : "s"), result.orders,
                       result.orders == 1 ? "was" : "were", result.slow_orders, result.slow_orders == 1 ? "is" : "are",
                       result.orders_left == 0 ? "" : fmt::format(", {} not tried", result.orders_left));
}

// What unequal numbers of blocks gain.
std::string blocks_text(const ClusterPlans& plans) {
    const ClusterPlan& best = *plans.result.best();
    if (best.choice.blocks.empty())
        return "";
    PlanChoice even = best.choice;
    even.blocks.clear();
    const auto found = std::ranges::find(plans.result.plans, even, &ClusterPlan::choice);
    if (found == plans.result.plans.end())
        return "";
    const double more = static_cast<double>(found->step_time) / static_cast<double>(best.step_time) - 1;
    return fmt::format("the same choice with equal numbers of blocks takes {}, {} more{}\n",
                       print_time(found->step_time), print_percent(more), found->fits ? "" : ", and does not fit");
}

// "64 to 2048 devices"
std::string devices_text(const std::vector<int>& devices) {
    const auto [least, most] = std::minmax_element(devices.begin(), devices.end());
    return *least == *most ? fmt::format("{} devices", *least) : fmt::format("{} to {} devices", *least, *most);
}

// The vendor's plan and the best one.
std::string vendor_text(const ClusterPlans& plans) {
    const ClusterResult& result = plans.result;
    if (!result.vendor)
        return "";
    const double ratio = static_cast<double>(result.vendor->step_time) / static_cast<double>(result.best()->step_time);
    std::string compared = fmt::format("the best one has {} {} tokens/s", print_percent(std::abs(ratio - 1)),
                                       ratio < 1 ? "fewer" : "more");
    if (result.vendor->choice == result.best()->choice)
        compared = "it is the best one";
    else if (!result.vendor->fits)
        compared = "it does not fit";
    return fmt::format("vendor's plan ({}, {} on {}): {}\n", result.recipe->source, result.recipe->model.name,
                       devices_text(result.recipe->devices), compared);
}

// Compares the best plan with the vendor's, or if that is the best one or there is none, with the second row.
std::string differences_text(const ClusterPlans& plans) {
    const ClusterResult& result = plans.result;
    const std::vector<const ClusterPlan*> rows = result.best_by_degrees(2);
    const bool is_vendor = result.vendor && !(result.vendor->choice == result.best()->choice);
    if (!is_vendor && rows.size() < 2)
        return "";
    const ClusterPlan& other = is_vendor ? *result.vendor : *rows[1];
    return "\n" + print_differences({"plan 1", rows[0]->parts}, {{is_vendor ? "vendor" : "plan 2", other.parts}});
}

Json json_of(const ClusterPlans& plans, const ClusterPlan& plan) {
    const Parallel& own = plan.choice.degrees;
    const ClusterRate rate = rate_of(plans, plan);
    const Setup setup = setup_of(plans.setup, plan.choice);
    // One value, or one for each device of the pipeline.
    const auto of_stages = [&](const auto& value_of) {
        Json values = Json::array();
        for (const Parallel& of : plan.choice.of_stages)
            values.push_back(value_of(of));
        const bool differ =
            std::any_of(values.begin(), values.end(), [&](const Json& one) { return one != values[0]; });
        return differ ? values : Json(value_of(own));
    };
    const auto degree = [&](int Parallel::*of_degree) {
        return of_stages([&](const Parallel& of) { return of.*of_degree; });
    };
    return {{"plan", print(plan.choice)},
            {"schedule", plan.choice.schedule},
            {"tensor", degree(&Parallel::tensor)},
            {"pipeline", own.pipeline},
            {"chunks", plan.choice.chunks()},
            {"hosts", plan.choice.hosts.empty() ? Json(nullptr) : Json(plan.choice.hosts)},
            {"blocks", plan.choice.blocks.empty() ? Json(nullptr) : Json(plan.choice.blocks)},
            {"context", degree(&Parallel::context)},
            {"expert", own.expert},
            {"data", own.data},
            {"zero", degree(&Parallel::zero)},
            {"recompute", of_stages([](const Parallel& of) { return name_of(of.recompute); })},
            {"sequence", own.sequence},
            {"micro_batches", setup.pipeline.micro_batches},
            {"micro_batch_size", plan.choice.micro_batch_size},
            {"mini_batch", setup.pipeline.mini_batch},
            {"step_time_ns", plan.step_time},
            {"samples_per_second", samples_per_second(plans, plan)},
            {"tokens_per_second", rate.tokens_per_second},
            {"model_flops_utilisation", rate.utilisation},
            {"parts_ns", json_of(plan.parts)},
            {"parts_rank", plan.parts.rank},
            {"bubble_rate", plan.bubble_rate},
            {"exposed_communication_ns", plan.exposed},
            {"reserved_memory_bytes", plan.most_reserved()},
            {"fits", plan.fits},
            {"runs_on", programs_that_run(setup)}};
}

Json json_of_best_plan(const ClusterPlans& plans) {
    const SearchConfig& search = plans.setup.search;
    const ClusterPlan& best = *plans.result.best();
    Json json = json_of(plans, best);
    const ClusterRate rate = rate_of(plans, best);
    json["devices"] = rate.devices;
    if (search.tokens > 0)
        json["training_seconds"] = seconds_of_training(plans, rate);
    if (search.tokens > 0 && search.price > 0)
        json["training_price"] = price_of_training(plans, rate);
    return json;
}

}  // namespace

std::function<std::string(const Setup&)> refusal_of_plans(const SearchSetup& setup) {
    const std::optional<Program> program = setup.search.program;
    if (!program)
        return {};
    return [program](const Setup& of_plan) {
        const std::optional<Refusal> refusal = refusal_of(*program, of_plan);
        return refusal ? fmt::format("{} ({})", refusal->fact, refusal->help) : "";
    };
}

ClusterPlans found_cluster_plans(const SearchSetup& setup, ClusterResult result) {
    ClusterPlans plans{setup, std::move(result)};
    if (plans.result.best() != nullptr)
        plans.best = job_in_row(plans, 1);
    return plans;
}

std::size_t rows_of(const ClusterPlans& plans, std::size_t most) { return plans.result.best_by_degrees(most).size(); }

Job job_in_row(const ClusterPlans& plans, std::size_t row) {
    Notices notices;  // of the schedule, which the search chose
    const ClusterPlan& plan = *plans.result.best_by_degrees(row).at(row - 1);
    return make_job(setup_of(plans.setup, plan.choice), plan.plan.get(), notices);
}

ClusterPlans search_best_cluster_plan(const SearchSetup& setup, ClusterLimits limits, const Hooks& hooks) {
    const auto start = std::chrono::steady_clock::now();
    if (hooks.should_stop)
        limits.should_stop = hooks.should_stop;
    limits.refusal = refusal_of_plans(setup);
    ClusterPlans plans =
        found_cluster_plans(setup, search_cluster(setup, limits, [&](const std::string& state) { hooks.show(state); }));
    plans.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return plans;
}

bool ended_without_a_plan(const ClusterPlans& plans) {
    return !plans.best && !plans.result.shortage && plans.result.stop != SearchStop::None;
}

void require_plan(const ClusterPlans& plans) {
    const ClusterResult& result = plans.result;
    if (plans.best)
        return;
    if (!result.shortage && result.refused > 0)
        fail_with(ExitCode::Infeasible,
                  "{} runs no plan of the search; the fastest one by its bound is refused: {}\n  help: let the search "
                  "choose more freely: leave out search.tensor, pipeline, context, zero and recompute, or leave "
                  "search.program out",
                  name_of(*plans.setup.search.program), result.refusal);
    if (!result.shortage)
        fail_with(ExitCode::Infeasible,
                  "no schedule of the search can run any of its choices\n  help: list other schedules "
                  "(search.schedules) or micro_batch_sizes");
    const Shortage& shortage = *result.shortage;
    fail_with(
        ExitCode::Infeasible,
        "{}: {} needs least, and its devices of rank {} of the pipeline need {} ({} bytes) but have {} ({} "
        "bytes)\n  help: add devices (cluster.hosts), raise cluster.memory, or let the search choose more freely: "
        "leave out search.tensor, pipeline, context, zero, recompute and micro_batch_sizes",
        result.none_fits ? "no plan fits" : "no plan was found that fits", print(*result.smallest), shortage.stage,
        print_bytes_as(shortage.needs, shortage.has), shortage.needs, print_bytes_as(shortage.has, shortage.has),
        shortage.has);
}

Json to_json(const ClusterPlans& plans) {
    const ClusterResult& result = plans.result;
    Json json = {{"schema_version", 1}, {"objective_name", "makespan"}};
    if (const ClusterPlan* best = result.best()) {
        json["best"] = json_of_best_plan(plans);
        json["objective"] = static_cast<double>(best->step_time) / 1e9;
        json["objective_ns"] = best->step_time;
        json["lower_bound_ns"] = result.lower_bound;
        json["gap"] = gap_of_best(plans);
    } else {
        const Shortage shortage = result.shortage.value_or(Shortage{});
        json["best"] = nullptr;
        json["infeasible"] = {{"plan", result.smallest ? Json(print(*result.smallest)) : Json(nullptr)},
                              {"stage", shortage.stage},
                              {"needs_bytes", shortage.needs},
                              {"has_bytes", shortage.has},
                              {"proven", result.none_fits}};
    }
    json["vendor"] = nullptr;
    if (result.vendor) {
        json["vendor"] = json_of(plans, *result.vendor);
        json["vendor"]["source"] = result.recipe->source;
    }
    json["choices"] = result.choices;
    if (const int orders = result.orders + result.slow_orders + result.orders_left; orders > 1)
        json["host_orders"] = {
            {"searched", result.orders}, {"too_slow", result.slow_orders}, {"untried", result.orders_left}};
    json["too_large"] = result.too_large;
    json["too_slow"] = result.too_slow;
    json["refused"] = result.refused;
    json["untried"] = result.untried;
    json["tried"] = result.plans.size();
    json["fitting"] = result.fitting;
    json["left_out"] = result.left_out;
    json["stopped_by"] = result.stop == SearchStop::None ? Json(nullptr) : Json(name_of(result.stop));
    json["candidates"] = result.plans.size();
    json["seconds"] = plans.seconds;
    json["plans"] = Json::array();
    for (const ClusterPlan& plan : result.plans)
        json["plans"].push_back(json_of(plans, plan));
    return json;
}

std::string to_text(const ClusterPlans& plans, std::size_t most) {
    const ClusterResult& result = plans.result;
    const ClusterPlan& best = *result.best();
    Table table(header_of(plans));
    int place = 0;
    for (const ClusterPlan* plan : result.best_by_degrees(most))
        table.add(row_of_plan(plans, *plan, std::to_string(++place)));
    if (result.vendor)
        table.add(row_of_plan(plans, *result.vendor, "vendor"));
    const ClusterRate rate = rate_of(plans, best);
    std::string text = fmt::format(
        "{}{} choices: {} need more memory and {} are slower, by bounds{}; {} plan{} simulated, {} fit{}{}{}\n\n",
        table.print(), result.choices, result.too_large, result.too_slow, refused_text(plans), result.plans.size(),
        result.plans.size() == 1 ? "" : "s", result.fitting, result.fitting == 1 ? "s" : "",
        result.untried == 0 ? "" : fmt::format("; {} with orders by costs not tried", result.untried),
        result.stop == SearchStop::None ? "" : fmt::format("; stopped by the {}", name_of(result.stop)));
    text += fmt::format("best: {}, step {}, {} tokens/s on {} device{}; {}\n", print(best.choice),
                        print_time(best.step_time), print_rate(rate.tokens_per_second, true), rate.devices,
                        rate.devices == 1 ? "" : "s", proof_of_best(plans));
    text += hosts_text(plans) + blocks_text(plans) + vendor_text(plans);
    if (const double tokens = plans.setup.search.tokens; tokens > 0)
        text += fmt::format(
            "{:.4g} tokens take {:.1f} days{}\n", tokens, seconds_of_training(plans, rate) / kDay,
            plans.setup.search.price > 0 ? fmt::format(" and cost {:.0f}", price_of_training(plans, rate)) : "");
    return text + differences_text(plans);
}

std::string best_config_yaml(const ClusterPlans& plans, const std::string& file, std::size_t row) {
    const ClusterPlan& plan = *plans.result.best_by_degrees(row).at(row - 1);
    const Job job = job_in_row(plans, row);
    Setup setup = job.setup;
    set_split(setup.pipeline, job.model->layers, job.split);
    return fmt::format(
        "# Found by `pipewright search`: {}.\n# Predicted step {}, reserved memory {}; {}.\n{}", print(plan.choice),
        print_time(plan.step_time), print_bytes_as(plan.most_reserved(), setup.parallel.memory),
        row == 1 ? proof_of_best(plans) : place_of_row(row, plans.result.best()->step_time), yaml_for(setup, file));
}

namespace {

// "interleaved", "PP2\u00d77", "DP16", ...
std::vector<std::string> short_parts_of(const PlanChoice& choice) {
    const Parallel& own = choice.degrees;
    return {choice.schedule,
            "TP" + print_degree(choice, &Parallel::tensor),
            choice.chunks() > 1 ? fmt::format("PP{}\u00d7{}", own.pipeline, choice.chunks())
                                : fmt::format("PP{}", own.pipeline),
            "CP" + print_degree(choice, &Parallel::context),
            fmt::format("EP{}", own.expert),
            fmt::format("DP{}", own.data),
            fmt::format("size {}", choice.micro_batch_size),
            "zero " + print_degree(choice, &Parallel::zero),
            "recompute " + print_recomputed(choice)};
}

}  // namespace

Chart chart_of(const ClusterPlans& plans) {
    std::vector<PlanDot> dots;
    for (const ClusterPlan& plan : plans.result.plans)
        dots.push_back(
            {plan.most_reserved(), plan.step_time, plan.fits, print(plan.choice), short_parts_of(plan.choice)});
    return chart_of(dots, plans.best ? memory_of_all(plans.best->setup) : kUnlimited);
}

}  // namespace pw

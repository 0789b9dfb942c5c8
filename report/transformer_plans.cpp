// What is said of found plans of transformers.
#include "job/transformer_job.h"
#include "report/error_band_text.h"
#include "report/plan_lead.h"
#include "report/report.h"
#include "report/search_words.h"
#include "report/step_parts_text.h"
#include "report/table.h"
#include "report/training_arguments.h"
#include "search/clusters/cluster_search.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;

double samples_per_second(const PlanSearch& search, const FoundPlan& plan) {
    return static_cast<double>(search.problem.setup.search.mini_batch) * 1e9 / static_cast<double>(plan.step_time);
}

ClusterRate rate_of(const PlanSearch& search, const FoundPlan& plan) {
    return cluster_rate(setup_of(search.problem.setup, plan.choice), samples_per_second(search, plan));
}

double seconds_of_training(const PlanSearch& search, const ClusterRate& rate) {
    return search.problem.setup.search.tokens / rate.tokens_per_second;
}

double price_of_training(const PlanSearch& search, const ClusterRate& rate) {
    return seconds_of_training(search, rate) / kHour * rate.devices * search.problem.setup.search.price;
}

bool is_shown(const PlanSearch& search, const ChoicePart& part) {
    const SearchSetup& setup = search.problem.setup;
    const std::vector<FoundPlan>& plans = search.result.plans;
    return (part.says == nullptr || std::ranges::any_of(plans, part.says, &FoundPlan::choice)) &&
           (!part.of_experts || setup.workload.transformer->experts) &&
           (!part.of_offload || setup.search.offload != SearchConfig::Recompute::None);
}

std::vector<std::string> header_of(const PlanSearch& search) {
    const SearchConfig& searched = search.problem.setup.search;
    std::vector<std::string> header = {"plan", "schedule"};
    for (const ChoicePart& part : parts_of(search.result.plans.front().choice))
        if (is_shown(search, part))
            header.push_back(part.name);
    for (const char* name : {"step", "tokens/s", "MFU", "bubble", "exposed"})
        header.emplace_back(name);
    header.push_back(memory_header("memory", memory_of_all(search.problem.setup)));
    header.emplace_back("runs on");
    if (searched.tokens > 0)
        header.emplace_back("days");
    if (searched.tokens > 0 && searched.price > 0)
        header.emplace_back("price");
    return header;
}

std::vector<std::string> row_of_plan(const PlanSearch& search, const FoundPlan& plan, std::string name) {
    const SearchConfig& searched = search.problem.setup.search;
    const PlanChoice& choice = plan.choice;
    const ClusterRate rate = rate_of(search, plan);
    std::vector<std::string> row = {std::move(name), choice.schedule};
    for (const ChoicePart& part : parts_of(choice))
        if (is_shown(search, part))
            row.push_back(part.value);
    row.push_back(print_time(plan.step_time));
    row.push_back(print_rate(rate.tokens_per_second, true));
    row.push_back(print_percent(rate.utilisation));
    row.push_back(print_percent(*plan.bubble_rate));
    row.push_back(print_time(plan.exposed));
    row.push_back(print_bytes_as(plan.most_reserved(), search.problem.setup.parallel.memory) +
                  (plan.fits ? "" : " (does not fit)"));
    const std::vector<std::string> programs = programs_that_run(setup_of(search.problem.setup, choice));
    row.push_back(programs.empty() ? "-" : fmt::format("{}", fmt::join(programs, ", ")));
    if (searched.tokens > 0)
        row.push_back(fmt::format("{:.1f}", seconds_of_training(search, rate) / kDay));
    if (searched.tokens > 0 && searched.price > 0)
        row.push_back(fmt::format("{:.0f}", price_of_training(search, rate)));
    return row;
}

// Choices that could be faster, but for another program.
std::string refused_text(const PlanSearch& search) {
    const int refused = search.result.refused;
    return refused == 0 ? ""
                        : fmt::format("; {} {} not for {}", refused, refused == 1 ? "is" : "are",
                                      name_of(*search.problem.setup.search.program));
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
std::string hosts_text(const PlanSearch& search) {
    const SearchResult& result = search.result;
    if (result.orders + result.slow_orders + result.orders_left < 2)
        return "";
    const std::vector<int>& all = search.problem.setup.parallel.ranks->host;
    const std::vector<int>& used = result.best()->choice.hosts;
    const int hosts = *std::ranges::max_element(all) + 1;
    const int idle = used.empty() ? 0 : hosts - static_cast<int>(used.size());
    return fmt::format("stages on {}{}; of the orders of hosts {} {} searched, {} {} no faster by bounds{}\n",
                       kinds_of_hosts(setup_of(search.problem.setup, result.best()->choice)),
                       idle == 0 ? "" : fmt::format(", {} host{} idle", idle, idle == 1 ? "" : "s"), result.orders,
                       result.orders == 1 ? "was" : "were", result.slow_orders, result.slow_orders == 1 ? "is" : "are",
                       result.orders_left == 0 ? "" : fmt::format(", {} not tried", result.orders_left));
}

// What unequal numbers of blocks gain.
std::string blocks_text(const PlanSearch& search) {
    const FoundPlan& best = *search.result.best();
    if (best.choice.blocks.empty())
        return "";
    PlanChoice even = best.choice;
    even.blocks.clear();
    const auto found = std::ranges::find(search.result.plans, even, &FoundPlan::choice);
    if (found == search.result.plans.end())
        return "";
    const double more = static_cast<double>(found->step_time) / static_cast<double>(best.step_time) - 1;
    return fmt::format("the same choice with {} takes {}, {} more{}\n", usual_division(search.problem.setup),
                       print_time(found->step_time), print_percent(more), found->fits ? "" : ", and does not fit");
}

// "64 to 2048 devices"
std::string devices_text(const std::vector<int>& devices) {
    const auto [least, most] = std::minmax_element(devices.begin(), devices.end());
    return *least == *most ? fmt::format("{} devices", *least) : fmt::format("{} to {} devices", *least, *most);
}

// The vendor's plan and the best plan.
std::string vendor_text(const PlanSearch& search) {
    const SearchResult& result = search.result;
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

// Compares the best plan with the vendor's. If the vendor's plan is the best or there is none, with the second row.
std::string differences_text(const PlanSearch& search) {
    const SearchResult& result = search.result;
    const std::vector<const FoundPlan*> rows = best_by_degrees(result, 2);
    const bool is_vendor = result.vendor && !(result.vendor->choice == result.best()->choice);
    if (!is_vendor && rows.size() < 2)
        return "";
    const FoundPlan& other = is_vendor ? *result.vendor : *rows[1];
    return "\n" + print_differences({"plan 1", rows[0]->parts}, {{is_vendor ? "vendor" : "plan 2", other.parts}});
}

// A value, or a value for each device of the pipeline.
Json json_of_degree(const PlanChoice& choice, const DegreeFacts& facts) {
    Json values = Json::array();
    for (const int value : values_of(facts.degree, choice.degrees, choice.of_stages))
        values.push_back(facts.words != nullptr ? Json(print_degree(facts.degree, value)) : Json(value));
    return values.size() == 1 ? values.front() : values;
}

Json json_of_transformer(const PlanSearch& search, const FoundPlan& plan) {
    const PlanChoice& choice = plan.choice;
    const ClusterRate rate = rate_of(search, plan);
    const Setup setup = setup_of(search.problem.setup, choice);
    Json json = {{"plan", print(choice)},
                 {"schedule", choice.schedule},
                 {"chunks", choice.chunks()},
                 {"slices", choice.slices},
                 {"slice_lengths", choice.slices > 1 ? Json(name_of(choice.slice_lengths)) : Json(nullptr)},
                 {"hosts", choice.hosts.empty() ? Json(nullptr) : Json(choice.hosts)},
                 {"blocks", choice.blocks.empty() ? Json(nullptr) : Json(choice.blocks)},
                 {"offloaded", choice.offloaded},
                 {"offload_ahead", choice.offloaded == 0 ? Json(nullptr) : Json(choice.offload_ahead)}};
    for (const DegreeFacts& facts : kDegrees)
        json[facts.name] = json_of_degree(choice, facts);
    json.update(Json{{"sequence", choice.degrees.sequence},
                     {"micro_batches", setup.pipeline.micro_batches},
                     {"micro_batch_size", choice.micro_batch_size},
                     {"mini_batch", setup.pipeline.mini_batch},
                     {"step_time_ns", plan.step_time},
                     {"samples_per_second", samples_per_second(search, plan)},
                     {"tokens_per_second", rate.tokens_per_second},
                     {"model_flops_utilisation", rate.utilisation},
                     {"parts_ns", json_of(plan.parts)},
                     {"parts_rank", plan.parts.rank},
                     {"bubble_rate", *plan.bubble_rate},
                     {"exposed_communication_ns", plan.exposed},
                     {"reserved_memory_bytes", plan.most_reserved()},
                     {"fits", plan.fits},
                     {"runs_on", programs_that_run(setup)}});
    return json;
}

void complete_best_transformer(const PlanSearch& search, Json& json) {
    const SearchConfig& searched = search.problem.setup.search;
    const ClusterRate rate = rate_of(search, *search.result.best());
    json["devices"] = rate.devices;
    json["band"] = to_json(search.result.best()->step_time, *rate.band);
    json["lead"] = to_json(search, lead_of(search, search.result.plans.size()));
    if (searched.tokens > 0)
        json["training_seconds"] = seconds_of_training(search, rate);
    if (searched.tokens > 0 && searched.price > 0)
        json["training_price"] = price_of_training(search, rate);
}

void complete_transformers(const PlanSearch& search, Json& json) {
    const SearchResult& result = search.result;
    json["vendor"] = nullptr;
    if (result.vendor) {
        json["vendor"] = json_of_transformer(search, *result.vendor);
        json["vendor"]["source"] = result.recipe->source;
    }
    if (const int orders = result.orders + result.slow_orders + result.orders_left; orders > 1)
        json["host_orders"] = {
            {"searched", result.orders}, {"too_slow", result.slow_orders}, {"untried", result.orders_left}};
    json["too_large"] = result.too_large;
    json["too_slow"] = result.too_slow;
    json["refused"] = result.refused;
    json["untried"] = result.untried;
}

std::vector<PlanRow> rows_of_degrees(const PlanSearch& search, std::size_t most) {
    std::vector<PlanRow> rows;
    for (const FoundPlan* plan : best_by_degrees(search.result, most))
        rows.push_back({plan});
    return rows;
}

std::string transformer_table(const PlanSearch& search, const std::vector<PlanRow>& rows) {
    Table table(header_of(search));
    int place = 0;
    for (const PlanRow& row : rows)
        table.add(row_of_plan(search, *row.plan, std::to_string(++place)));
    if (search.result.vendor)
        table.add(row_of_plan(search, *search.result.vendor, "vendor"));
    return table.print();
}

std::string transformer_counts(const PlanSearch& search) {
    const SearchResult& result = search.result;
    return fmt::format(
        "{} choices: {} need more memory and {} are slower, by bounds{}; {} plan{} simulated, {} fit{}{}",
        result.choices, result.too_large, result.too_slow, refused_text(search), result.plans.size(),
        result.plans.size() == 1 ? "" : "s", result.fitting, result.fitting == 1 ? "s" : "",
        result.untried == 0 ? "" : fmt::format("; {} with orders by costs not tried", result.untried));
}

std::string transformer_rate(const PlanSearch& search) {
    const ClusterRate rate = rate_of(search, *search.result.best());
    return fmt::format(", {} tokens/s on {} device{}", print_rate(rate.tokens_per_second, true), rate.devices,
                       rate.devices == 1 ? "" : "s");
}

std::string transformer_details(const PlanSearch& search, std::size_t most) {
    const SearchConfig& searched = search.problem.setup.search;
    const ClusterRate rate = rate_of(search, *search.result.best());
    std::string text = to_text(search.result.best()->step_time, *rate.band) + to_text(search, lead_of(search, most)) +
                       hosts_text(search) + blocks_text(search) + vendor_text(search);
    if (searched.tokens > 0)
        text +=
            fmt::format("{:.4g} tokens take {:.1f} days{}\n", searched.tokens, seconds_of_training(search, rate) / kDay,
                        searched.price > 0 ? fmt::format(" and cost {:.0f}", price_of_training(search, rate)) : "");
    return text + differences_text(search);
}

// "interleaved", "PP2\u00d77", "DP16", ...
std::vector<std::string> short_parts_of(const PlanChoice& choice) {
    std::vector<std::string> marks = {choice.schedule};
    for (const ChoicePart& part : parts_of(choice))
        if (!part.mark.empty())
            marks.push_back(part.mark);
    return marks;
}

[[noreturn]] void refuse_transformer(const PlanSearch& search) {
    const SearchResult& result = search.result;
    if (!result.shortage && result.refused > 0)
        fail_with(ExitCode::Infeasible,
                  "{} runs no plan of the search; the fastest one by its bound is refused: {}\n  help: let the search "
                  "choose more freely: leave out search.tensor, pipeline, context, zero and recompute, or leave "
                  "search.program out",
                  name_of(*search.problem.setup.search.program), result.refusal);
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

}  // namespace

const SearchWords kTransformerPlans = {.rows = rows_of_degrees,
                                       .table = transformer_table,
                                       .counts = transformer_counts,
                                       .rate = transformer_rate,
                                       .details = transformer_details,
                                       .short_parts = short_parts_of,
                                       .json_of_plan = json_of_transformer,
                                       .complete_best = complete_best_transformer,
                                       .complete = complete_transformers,
                                       .refuse = refuse_transformer};

const char* usual_division(const Setup& setup) {
    return has_unlike_blocks(setup) ? "the default split" : "equal numbers of blocks";
}

}  // namespace pw

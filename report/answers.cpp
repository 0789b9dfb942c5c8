#include "report/answers.h"

#include "job/settings.h"
#include "report/idle_causes.h"
#include "report/notes.h"
#include "report/predict.h"
#include "report/step_parts_text.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "sim/simulate.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <thread>

namespace pw {

namespace {

constexpr double kSlower = 0.1;  // a straggler

bool is_schedule(const std::string& name) {
    try {
        schedule_named(name);
        return true;
    } catch (const Error&) {
        return false;
    }
}

double change_of(Ns time, Ns of) { return of > 0 ? static_cast<double>(time - of) / static_cast<double>(of) : 0; }

Jitter jitter_of(const std::string& text, const Job& job) {
    if (text != "profile")
        return read_jitter(text);
    if (job.source != CostSource::Measured)
        job.setup.fail_at("cluster.profile",
                          fmt::format("--jitter profile takes the spreads of a profile, and these costs are {}",
                                      row_of(job.source).name),
                          "write cluster.profile, or --jitter lognormal:0.05");
    return normal_jitter(spreads_of(job.split, job.profile, job.setup.pipeline.micro_batch_size));
}

std::optional<StepTimeDraws> draws_of(const Questions& questions, const Job& job, Simulator& simulator,
                                      const Hooks& hooks) {
    constexpr std::pair<const char*, double> kQuantiles[] = {{"min", 0},    {"p05", 0.05}, {"p50", 0.5},
                                                             {"p95", 0.95}, {"p99", 0.99}, {"max", 1}};
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const Samples samples = simulator.sample(job.costs, jitter_of(questions.jitter, job), questions.samples,
                                             questions.seed, threads, hooks.should_stop);
    if (samples.step_times.empty())
        return std::nullopt;
    const auto count = static_cast<double>(samples.step_times.size());
    StepTimeDraws draws{static_cast<int>(samples.step_times.size()), questions.jitter, questions.seed, 0, {}, {}};
    draws.mean = std::accumulate(samples.step_times.begin(), samples.step_times.end(), 0.0) / count;
    for (const auto& [name, part] : kQuantiles)
        draws.quantiles.emplace_back(name, quantile_of(samples, part));
    for (const int slowest : samples.slowest)
        draws.slowest.push_back(slowest / count);
    return draws;
}

std::vector<Straggler> stragglers_of(const Job& job, Simulator& simulator, Ns step_time, const Hooks& hooks) {
    std::vector<Straggler> stragglers;
    for (int device = 0; device < job.plan.shape.devices && !hooks.stops(); ++device) {
        Costs costs = job.costs;
        std::vector<DeviceKind> kinds;
        for (int other = 0; other < job.plan.shape.devices; ++other)
            kinds.push_back(
                {costs.cluster->speed_of(other) / (other == device ? 1 + kSlower : 1), costs.cluster->times_of(other)});
        ClusterEdit(costs)->set_kinds(kinds);
        const Ns time = simulator.step_time(costs);
        stragglers.push_back({device, kSlower, time, change_of(time, step_time)});
    }
    return stragglers;
}

void check_settings(const std::vector<std::string>& settings) {
    for (const std::string& text : settings)
        if (text.find('=') == std::string::npos)
            fail("--what-if {} has no '='\n  help: write a key and a value, as in --what-if {}", text,
                 is_schedule(text) ? "pipeline.schedule=" + text : "pipeline.micro_batches=16");
}

std::vector<WhatIf> what_if(const std::vector<std::string>& settings, const ConfigSource& source, Ns step_time,
                            const Hooks& hooks) {
    std::vector<WhatIf> alternatives;
    for (const std::string& setting : settings)
        alternatives.push_back({{setting}});
    if (alternatives.size() > 1)
        alternatives.push_back({settings});
    for (std::size_t k = 0; k < alternatives.size(); ++k) {
        WhatIf& one = alternatives[k];
        if (hooks.stops()) {
            alternatives.resize(k);
            break;
        }
        hooks.show(fmt::format("what if {} of {}", k + 1, alternatives.size()));
        try {
            Notices notices;
            const Job job = make_job(source.load_with(one.set), notices);
            one.report = predicted_report(job, false);
            one.idle = idle_keys(job.setup, job.plan);
            std::erase_if(one.idle, [&](const IdleKey& idle) {
                return std::ranges::none_of(one.set,
                                            [&](const std::string& text) { return text.starts_with(idle.key + '='); });
            });
            one.change = change_of(one.report->metrics.step_time, step_time);
        } catch (const Error& error) {
            if (alternatives.size() == 1)
                throw;
            one.error = error;
        }
    }
    return alternatives;
}

std::string csv_of_slack(const Explanation& all, const Plan& plan) {
    std::string text = "device,step,task,slack_ns\n";
    std::size_t node = 0;
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        for (std::size_t step = 0; step < plan.order[device].size(); ++step)
            text += fmt::format("{},{},{},{}\n", device, step, print(plan.order[device][step]), all.slack[node++]);
    return text;
}

std::string draws_text(const StepTimeDraws& draws, const Answers& answers) {
    Table table({"step time", "of the draws"});
    for (const auto& [name, time] : draws.quantiles)
        table.add({name, fmt::format("{} ({} of the prediction)", print_time(time),
                                     print_signed_percent(change_of(time, answers.step_time)))});
    Table busiest({"device", "the slowest in"});
    for (std::size_t device = 0; device < draws.slowest.size(); ++device)
        busiest.add({answers.devices[device], print_percent(draws.slowest[device])});
    return fmt::format("\n{} draws, {}:\n{}\n{}", draws.draws, draws.jitter, table.print(), busiest.print());
}

Json json_of_draws(const StepTimeDraws& draws) {
    Json times = {{"mean", draws.mean}};
    for (const auto& [name, time] : draws.quantiles)
        times[name] = time;
    return {{"draws", draws.draws},
            {"jitter", draws.jitter},
            {"seed", draws.seed},
            {"step_time_ns", std::move(times)},
            {"slowest", draws.slowest}};
}

std::string stragglers_text(const Answers& answers) {
    Table table({"slower by 10 %", "step time", "change"});
    for (const Straggler& one : answers.stragglers)
        table.add({"device " + answers.devices[static_cast<std::size_t>(one.device)], print_time(one.step_time),
                   print_signed_percent(one.change)});
    return "\n" + table.print();
}

Json json_of_stragglers(const std::vector<Straggler>& stragglers) {
    Json rows = Json::array();
    for (const Straggler& one : stragglers)
        rows.push_back(
            {{"device", one.device}, {"slower", one.slower}, {"step_time_ns", one.step_time}, {"change", one.change}});
    return rows;
}

// "needs 50 GB more than it has"
std::string fit_of(const Report& report) {
    Bytes over = 0, limit = kUnlimited;
    for (std::size_t device = 0; device < report.limits.size(); ++device)
        if (const Bytes more = report.metrics.devices[device].needed_memory() - report.limits[device];
            report.limits[device] != kUnlimited && more > over) {
            over = more;
            limit = report.limits[device];
        }
    return over == 0 ? "yes" : fmt::format("no, {} over", print_bytes_as(over, limit));
}

Bytes limit_of(const Report& report) { return report.limits.empty() ? kUnlimited : report.limits.front(); }

std::vector<std::string> row_of_answer(std::string name, const WhatIf& one, bool of_cluster) {
    std::vector<std::string> row = {std::move(name)};
    const std::size_t numbers = of_cluster ? 8 : 6;
    if (one.error) {
        row.resize(numbers, "-");
        row.push_back(first_line(*one.error));
        return row;
    }
    const Report& report = *one.report;
    row.push_back(print_time(report.metrics.step_time));
    row.push_back(print_signed_percent(one.change));
    row.push_back(print_rate(report.metrics.samples_per_second, false));
    if (of_cluster && report.cluster) {
        row.push_back(print_rate(report.cluster->tokens_per_second, true));
        row.push_back(print_percent(report.cluster->utilisation));
    } else if (of_cluster) {
        row.resize(row.size() + 2, "-");
    }
    row.push_back(print_percent(report.metrics.bubble_rate));
    row.push_back(print_bytes_as(largest_reserved(report), limit_of(report)));
    row.push_back(fit_of(report));
    return row;
}

std::string setting_of(const WhatIf& one) { return one.set.size() > 1 ? "all of them" : one.set.front(); }

// How to correct a value, which keys have no effect, and which steps are of other samples than the prediction's: their
// times say little.
std::string remarks_text(const Answers& answers) {
    std::string text;
    for (const WhatIf& one : answers.what_if)
        if (one.error && one.set.size() == 1 && !one.error->help().empty())
            text += fmt::format("{}: {}\n", setting_of(one), escaped_line(one.error->help()));
    for (const WhatIf& one : answers.what_if)
        for (const IdleKey& key : one.set.size() == 1 ? one.idle : std::vector<IdleKey>{})
            text += print(key) + '\n';
    for (const WhatIf& one : answers.what_if)
        if (const std::int64_t samples = one.report ? samples_of_step(one.report->metrics) : answers.samples;
            samples != answers.samples)
            text += fmt::format("{}: a step takes {} samples, now {}: compare {}/s, not step times\n", setting_of(one),
                                samples, answers.samples, answers.of_cluster ? "tokens" : "samples");
    return text;
}

std::string what_if_text(const Answers& answers) {
    std::vector<NamedParts> others;
    std::vector<std::string> head = {"what if", "step time", "change", "samples/s"};
    if (answers.of_cluster)
        head.insert(head.end(), {"tokens/s", "MFU"});
    head.insert(head.end(), {"bubble rate", "memory", "fits"});
    Table table(std::move(head));
    for (const WhatIf& one : answers.what_if) {
        table.add(row_of_answer(setting_of(one), one, answers.of_cluster));
        if (one.report && one.report->cluster && one.report->cluster->step)
            others.push_back({setting_of(one), *one.report->cluster->step});
    }
    const bool has_parts = answers.parts && !others.empty();
    return "\n" + table.print() + remarks_text(answers) +
           (has_parts ? "\n" + print_differences({"now", *answers.parts}, others) : "");
}

Json json_of_what_if(const std::vector<WhatIf>& alternatives) {
    Json rows = Json::array();
    for (const WhatIf& one : alternatives) {
        Json row = {{"set", one.set}};
        for (const IdleKey& key : one.idle)
            row["idle"].push_back(key.key);
        if (one.error) {
            row["error"] = first_line(*one.error);
        } else {
            const Report& report = *one.report;
            row.update({{"step_time_ns", report.metrics.step_time},
                        {"change", one.change},
                        {"samples_per_second", report.metrics.samples_per_second},
                        {"mini_batch", samples_of_mini_batch(report.trace)},
                        {"bubble_rate", report.metrics.bubble_rate},
                        {"reserved_memory_bytes", largest_reserved(report)},
                        {"fits", fits(report)}});
            if (report.cluster)
                row.update({{"tokens_per_second", report.cluster->tokens_per_second},
                            {"model_flops_utilisation", report.cluster->utilisation}});
            if (report.cluster && report.cluster->step)
                row["parts_ns"] = json_of(*report.cluster->step);
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

// No dispatcher is shown where none holds a device up.
bool is_shown(const IdleCauseName& cause, const Explanation& explanation) {
    return cause.time != &IdleCauses::dispatcher ||
           std::ranges::any_of(explanation.idle, [](const IdleCauses& causes) { return causes.dispatcher > 0; });
}

}  // namespace

std::vector<std::vector<std::string>> rows_of(const Explanation& all, const std::vector<std::string>& names) {
    std::vector<std::string> head = {"device", "on the critical path", "idle"};
    for (const IdleCauseName& cause : kIdleCauses)
        if (is_shown(cause, all))
            head.emplace_back(cause.title);
    std::vector<std::vector<std::string>> rows = {std::move(head)};
    for (std::size_t device = 0; device < all.idle.size(); ++device) {
        const IdleCauses& causes = all.idle[device];
        std::vector<std::string> row = {names[device], print_time(all.critical[device]), print_time(causes.total())};
        for (const IdleCauseName& cause : kIdleCauses)
            if (is_shown(cause, all))
                row.push_back(print_time(causes.*cause.time));
        rows.push_back(std::move(row));
    }
    return rows;
}

std::string to_text(const Explanation& all, const std::vector<std::string>& names) {
    Table links({"link", "on the critical path"});
    for (const Explanation::LinkShare& link : all.links)
        links.add({fmt::format("{} to {}", names[static_cast<std::size_t>(link.from)],
                               link.to == link.from ? "its host" : names[static_cast<std::size_t>(link.to)]),
                   print_time(link.time)});
    return "\n" + table_of(rows_of(all, names)).print() + (all.links.empty() ? "" : "\n" + links.print());
}

Json to_json(const Explanation& all) {
    Json idle = Json::array(), links = Json::array();
    for (const IdleCauses& causes : all.idle) {
        Json row;
        for (const IdleCauseName& cause : kIdleCauses)
            row[cause.key] = causes.*cause.time;
        idle.push_back(std::move(row));
    }
    for (const Explanation::LinkShare& link : all.links)
        links.push_back({{"from", link.from}, {"to", link.to}, {"time_ns", link.time}});
    return {{"critical_ns", all.critical}, {"critical_links", std::move(links)}, {"idle", std::move(idle)}};
}

Answers answers_to(const Questions& questions, const ConfigSource& source, const Job& job, const Report& report,
                   const Hooks& hooks) {
    check_settings(questions.what_if);
    Answers answers{report.names, report.metrics.step_time, samples_of_step(report.metrics),
                    report.cluster.has_value()};
    if (report.cluster)
        answers.parts = report.cluster->step;
    Simulator simulator = simulator_of(job);
    at_its_place(job.setup, [&] {
        if (questions.samples > 0 && !hooks.stops())
            answers.draws = draws_of(questions, job, simulator, hooks);
        if (questions.stragglers)
            answers.stragglers = stragglers_of(job, simulator, answers.step_time, hooks);
        if ((questions.explain || questions.slack) && !hooks.stops()) {
            Explanation all = simulator.explain(job.costs);
            if (questions.slack)
                answers.slack = csv_of_slack(all, job.plan);
            if (questions.explain)
                answers.explanation = std::move(all);
        }
    });
    answers.what_if = what_if(questions.what_if, source, answers.step_time, hooks);
    return answers;
}

Json to_json(const Answers& answers) {
    Json json;
    if (answers.draws)
        json["samples"] = json_of_draws(*answers.draws);
    if (!answers.stragglers.empty())
        json["stragglers"] = json_of_stragglers(answers.stragglers);
    if (answers.explanation)
        json["explanation"] = to_json(*answers.explanation);
    if (!answers.what_if.empty())
        json["what_if"] = json_of_what_if(answers.what_if);
    return json;
}

std::string to_text(const Answers& answers) {
    std::string text;
    if (answers.draws)
        text += draws_text(*answers.draws, answers);
    if (!answers.stragglers.empty())
        text += stragglers_text(answers);
    if (answers.explanation)
        text += to_text(*answers.explanation, answers.devices);
    if (!answers.what_if.empty())
        text += what_if_text(answers);
    return text;
}

}  // namespace pw

#include "cli/answers.h"
#include "cli/option_numbers.h"

#include "cli/prediction.h"
#include "cli/sweep.h"
#include "cli/table.h"
#include "job/settings.h"
#include "schedules/orders/schedule.h"
#include "search/predict.h"
#include "sim/simulate.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

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

double delta(Ns time, Ns of) { return of > 0 ? static_cast<double>(time - of) / static_cast<double>(of) : 0; }

Jitter jitter_of(const std::string& text, const Job& job) {
    if (text != "profile")
        return read_jitter(text);
    if (job.source != CostSource::Measured)
        job.config.fail_at("cluster.profile",
                           fmt::format("--jitter profile takes the spreads of a profile, and these costs are {}",
                                       row_of(job.source).name),
                           "write cluster.profile, or --jitter lognormal:0.05");
    return normal_jitter(spreads_of(job.split, job.profile, job.config.pipeline.micro_batch_size));
}

void add_samples(const AnswerArguments& arguments, const Job& job, Simulator& simulator, const Report& report,
                 Answers& answers) {
    const Jitter jitter = jitter_of(arguments.jitter, job);
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const Samples samples = simulator.sample(job.costs, jitter, arguments.samples, arguments.seed, threads);
    const double count = arguments.samples;
    Json times = {{"mean", std::accumulate(samples.step_times.begin(), samples.step_times.end(), 0.0) / count}};
    Table table({"step time", "of the draws"});
    const std::pair<const char*, double> quantiles[] = {{"min", 0},    {"p05", 0.05}, {"p50", 0.5},
                                                        {"p95", 0.95}, {"p99", 0.99}, {"max", 1}};
    for (const auto& [name, part] : quantiles) {
        times[name] = quantile_of(samples, part);
        table.add(
            {name, fmt::format("{} ({} of the prediction)", print_time(quantile_of(samples, part)),
                               print_signed_percent(delta(quantile_of(samples, part), report.metrics.step_time)))});
    }
    Json slowest = Json::array();
    Table busiest({"device", "the slowest in"});
    for (std::size_t device = 0; device < samples.slowest.size(); ++device) {
        slowest.push_back(samples.slowest[device] / count);
        busiest.add({report.names[device], print_percent(samples.slowest[device] / count)});
    }
    answers.json["samples"] = {{"draws", arguments.samples},
                               {"jitter", arguments.jitter},
                               {"seed", arguments.seed},
                               {"step_time_ns", std::move(times)},
                               {"slowest", std::move(slowest)}};
    answers.text +=
        fmt::format("\n{} draws, {}:\n{}\n{}", arguments.samples, arguments.jitter, table.print(), busiest.print());
}

void add_stragglers(const Job& job, Simulator& simulator, const Report& report, Answers& answers) {
    Json rows = Json::array();
    Table table({"slower by 10 %", "step time", "change"});
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        Costs costs = job.costs;
        costs.speed.resize(static_cast<std::size_t>(job.plan.shape.devices), 1);
        costs.speed[static_cast<std::size_t>(device)] /= 1 + kSlower;
        const Ns time = simulator.step_time(costs);
        const double change = delta(time, report.metrics.step_time);
        rows.push_back({{"device", device}, {"slower", kSlower}, {"step_time_ns", time}, {"change", change}});
        table.add({"device " + report.names[static_cast<std::size_t>(device)], print_time(time),
                   print_signed_percent(change)});
    }
    answers.json["stragglers"] = std::move(rows);
    answers.text += "\n" + table.print();
}

void add_what_if(const AnswerArguments& arguments, const ConfigArguments& config, const Report& report,
                 Answers& answers) {
    std::vector<std::vector<std::string>> alternatives;
    for (const std::string& setting : arguments.what_if)
        alternatives.push_back({setting});
    if (alternatives.size() > 1)
        alternatives.push_back(arguments.what_if);
    Json rows = Json::array();
    Table table({"what if", "step time", "change", "samples/s", "bubble rate"});
    for (const std::vector<std::string>& settings : alternatives) {
        const std::string name = settings.size() > 1 ? "all of them" : settings.front();
        Json row = {{"set", settings}};
        try {
            ConfigArguments other = config;
            other.set.insert(other.set.end(), settings.begin(), settings.end());
            Notices notices;
            const Metrics metrics = predict_numbers(make_job(other.load(), notices)).metrics;
            const double change = delta(metrics.step_time, report.metrics.step_time);
            row.update({{"step_time_ns", metrics.step_time},
                        {"change", change},
                        {"samples_per_second", metrics.samples_per_second},
                        {"bubble_rate", metrics.bubble_rate}});
            table.add({name, print_time(metrics.step_time), print_signed_percent(change),
                       fmt::format("{:.4g}", metrics.samples_per_second), print_percent(metrics.bubble_rate)});
        } catch (const Error& error) {
            if (alternatives.size() == 1)
                throw;
            row["error"] = first_line(error);
            table.add({name, "-", "-", "-", first_line(error)});
        }
        rows.push_back(std::move(row));
    }
    answers.json["what_if"] = std::move(rows);
    answers.text += "\n" + table.print();
}

void add_explanation(const Explanation& all, const Report& report, Answers& answers) {
    Json idle = Json::array(), links = Json::array();
    std::vector<std::string> head = {"device",   "on the critical path", "idle",      "warm-up", "cool-down",
                                     "updates",  "dependency",           "imbalance", "lane",    "data",
                                     "exchange", "copy of a send"};
    const bool called = std::ranges::any_of(all.idle, [](const IdleCauses& causes) { return causes.dispatcher > 0; });
    if (called)
        head.emplace_back("dispatcher");
    Table table(std::move(head));
    for (std::size_t device = 0; device < all.idle.size(); ++device) {
        const IdleCauses& causes = all.idle[device];
        idle.push_back({{"warm_up_ns", causes.warm_up},
                        {"cool_down_ns", causes.cool_down},
                        {"updates_ns", causes.updates},
                        {"dependency_ns", causes.dependency},
                        {"imbalance_ns", causes.imbalance},
                        {"lane_ns", causes.lane},
                        {"data_ns", causes.data},
                        {"exchange_ns", causes.exchange},
                        {"dispatcher_ns", causes.dispatcher},
                        {"send_memory_ns", causes.send_memory}});
        std::vector<std::string> row = {
            report.names[device],          print_time(all.critical[device]), print_time(causes.total()),
            print_time(causes.warm_up),    print_time(causes.cool_down),     print_time(causes.updates),
            print_time(causes.dependency), print_time(causes.imbalance),     print_time(causes.lane),
            print_time(causes.data),       print_time(causes.exchange),      print_time(causes.send_memory)};
        if (called)
            row.push_back(print_time(causes.dispatcher));
        table.add(std::move(row));
    }
    Table of_links({"link", "on the critical path"});
    for (const Explanation::LinkShare& link : all.links) {
        links.push_back({{"from", link.from}, {"to", link.to}, {"time_ns", link.time}});
        of_links.add({fmt::format("{} to {}", report.names[static_cast<std::size_t>(link.from)],
                                  report.names[static_cast<std::size_t>(link.to)]),
                      print_time(link.time)});
    }
    answers.json["explanation"] = {
        {"critical_ns", all.critical}, {"critical_links", std::move(links)}, {"idle", std::move(idle)}};
    answers.text += "\n" + table.print() + (all.links.empty() ? "" : "\n" + of_links.print());
}

std::string csv_of_slack(const Explanation& all, const Plan& plan) {
    std::string text = "device,step,task,slack_ns\n";
    std::size_t node = 0;
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        for (std::size_t step = 0; step < plan.order[device].size(); ++step)
            text += fmt::format("{},{},{},{}\n", device, step, print(plan.order[device][step]), all.slack[node++]);
    return text;
}

}  // namespace

void add_answers(CLI::App& command, AnswerArguments& arguments) {
    CLI::Option* samples =
        command.add_option("--samples", arguments.samples, "so many draws in which tasks take longer or shorter")
            ->type_name("N")
            ->check(whole_number(1, 10'000'000));
    command.add_option("--jitter", arguments.jitter, "lognormal:SIGMA, or profile; default: lognormal:0.05")
        ->type_name("KIND")
        ->needs(samples);
    command.add_option("--seed", arguments.seed, "of the draws; default: 0")->type_name("N")->needs(samples);
    command.add_flag("--stragglers", arguments.stragglers, "the step time with each device 10 % slower in turn");
    command
        .add_option("--what-if", arguments.what_if,
                    "the step time with another value; may be repeated, and then with all of them, too")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command.add_flag("--explain", arguments.explain, "what is on the critical path, and why devices are idle");
    command.add_option("--slack", arguments.slack, "write how much later every task could end (CSV)")
        ->type_name("FILE");
}

Answers answers_of(const AnswerArguments& arguments, const ConfigArguments& config, const Job& job,
                   const Report& report) {
    Answers answers;
    Simulator simulator = simulator_of(job);
    at_its_place(job.config, [&] {
        if (arguments.samples > 0)
            add_samples(arguments, job, simulator, report, answers);
        if (arguments.stragglers)
            add_stragglers(job, simulator, report, answers);
        if (arguments.explain || !arguments.slack.empty()) {
            const Explanation all = simulator.explain(job.costs);
            if (arguments.explain)
                add_explanation(all, report, answers);
            if (!arguments.slack.empty())
                answers.slack = csv_of_slack(all, job.plan);
        }
    });
    for (const std::string& text : arguments.what_if)
        if (text.find('=') == std::string::npos)
            fail("--what-if {} has no '='\n  help: write a key and a value, as in --what-if {}", text,
                 is_schedule(text) ? "pipeline.schedule=" + text : "pipeline.micro_batches=16");
    if (!arguments.what_if.empty())
        add_what_if(arguments, config, report, answers);
    return answers;
}

}  // namespace pw

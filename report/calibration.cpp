#include "report/calibration.h"

#include "job/config/given.h"
#include "job/job.h"
#include "report/predict.h"
#include "report/report.h"
#include "report/table.h"
#include "workloads/text/files.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

namespace pw {

namespace {

struct FactorRow {
    std::string_view name;  // the key in the block `calibration`
    double Calibration::*value;
    std::string_view what;
};
constexpr FactorRow kFactors[] = {
    {"computing", &Calibration::computing, "kernels"},
    {"inside", &Calibration::inside, "messages within a host or domain"},
    {"between", &Calibration::between, "messages between hosts"},
    {"outside", &Calibration::outside, "time outside of kernels"},
};

// Factors have four decimals, as people write them.
std::vector<double> rounded(std::vector<double> factors) {
    for (double& factor : factors)
        factor = std::round(factor * 1e4) / 1e4;
    return factors;
}

constexpr std::string_view kStepColumn = "step";
constexpr double kUnlikely = 0.2;  // error of a calibrated prediction that is most likely a mistake

Calibration calibration_of(const std::vector<double>& factors, std::size_t runs) {
    Calibration calibration{.runs = static_cast<int>(runs)};
    for (std::size_t factor = 0; factor < factors.size(); ++factor)
        calibration.*kFactors[factor].value = factors[factor];
    return calibration;
}

// Returns the parts of a text between separators that are not within brackets or braces.
std::vector<std::string> parts_outside_brackets(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (const char c : text) {
        depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        if (c == separator && depth == 0)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

std::string trimmed(std::string text) {
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

// Reads "150000 tokens/s" for the unit "tokens/s". Returns 0 if it is no such rate.
double rate_in(const std::string& text, std::string_view unit) {
    if (!text.ends_with(unit))
        return 0;
    const std::string number = trimmed(text.substr(0, text.size() - unit.size()));
    double rate = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rate);
    return error == std::errc() && end == number.data() + number.size() && std::isfinite(rate) && rate > 0 ? rate : 0;
}

void read_step(MeasuredRun& run, const std::string& text, const std::string& place) {
    run.step = parse_time(text);
    run.tokens_per_second = rate_in(text, "tokens/s");
    run.samples_per_second = rate_in(text, "samples/s");
    if (run.step.value_or(0) > 0 || run.tokens_per_second > 0 || run.samples_per_second > 0)
        return;
    const std::string meant = run.step ? "" : meant_time(text);
    fail(
        "{}: '{}' is no measured step\n  help: {}write PLAN=STEP: a time or a rate, as in 53.7 s, 156000 tokens/s or "
        "19 "
        "samples/s",
        place, text, meant.empty() ? "" : fmt::format("did you mean {}? ", meant));
}

}  // namespace

MeasuredRun read_run(const std::string& text, const std::string& place) {
    std::vector<std::string> parts = parts_outside_brackets(text, '=');
    const std::string step = trimmed(parts.back());
    const std::string plan = parts.size() == 1 ? "" : text.substr(0, text.size() - parts.back().size() - 1);
    MeasuredRun run{.name = plan};
    read_step(run, step, place);
    if (plan.find('=') == std::string::npos) {
        run.path = plan;
        return run;
    }
    for (const std::string& setting : parts_outside_brackets(plan, ',')) {
        if (setting.find('=') == std::string::npos)
            fail(
                "{}: '{}' in '{}' is no override\n  help: separate overrides by commas, as in "
                "parallel.tensor=4,pipeline.micro_batch_size=2={}",
                place, setting, plan, step);
        run.set.push_back(trimmed(setting));
    }
    return run;
}

namespace {

MeasuredRun run_in_row(const std::vector<std::string>& columns, const std::vector<std::string>& cells,
                       const std::string& place) {
    MeasuredRun run;
    for (std::size_t column = 0; column < columns.size(); ++column) {
        const std::string cell = trimmed(cells[column]);
        if (columns[column] == kStepColumn)
            read_step(run, cell, place);
        else if (!cell.empty())
            run.set.push_back(fmt::format("{}={}", columns[column], cell));
    }
    run.name = run.set.empty() ? place : fmt::format("{}", fmt::join(run.set, ","));
    return run;
}

}  // namespace

std::vector<MeasuredRun> read_runs(const std::string& path) {
    constexpr const char* kForm =
        "write a line of names, as in parallel.tensor,pipeline.micro_batch_size,step, and a line "
        "for each run, as in 4,2,53.7 s";
    std::istringstream lines(read_text(path, "name a CSV file that can be read"));
    std::vector<std::string> columns;
    std::vector<MeasuredRun> runs;
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (line.empty())
            continue;
        const std::vector<std::string> cells = parts_outside_brackets(line, ',');
        const std::string place = fmt::format("{}:{}", path, number);
        if (columns.empty()) {
            for (const std::string& cell : cells)
                columns.push_back(trimmed(cell));
            if (std::ranges::count(columns, kStepColumn) != 1)
                fail("{}: no column or several columns are called '{}'\n  help: {}", place, kStepColumn, kForm);
        } else if (cells.size() != columns.size()) {
            fail("{}: there are {} cells, but {} columns\n  help: {}", place, cells.size(), columns.size(), kForm);
        } else {
            runs.push_back(run_in_row(columns, cells, place));
        }
    }
    if (runs.empty())
        fail("'{}' has no runs\n  help: {}", path, kForm);
    return runs;
}

namespace {

// A run that can be simulated, and its measured step.
struct PosedRun {
    Setup setup;
    Ns measured = 0;
};

std::string name_of(const MeasuredRun& run, const ConfigSource& source) {
    return run.name.empty() ? std::filesystem::path(source.path).filename().string() : run.name;
}

void refuse_other_workloads(const Config& config) {
    if (!is_transformer(config))
        config.fail_at(
            "workload.model",
            fmt::format("calibration is of transformers on clusters, not of model: {}", config.workload.model),
            "measure the layers of other models (`pipewright profile`), or name one of `pipewright list "
            "transformers`");
}

Job job_under(const Setup& setup, const Calibration& calibration) {
    Setup calibrated = setup;
    calibrated.calibration = calibration;
    Notices notices;
    return make_job(std::move(calibrated), notices);
}

Ns step_under(const Setup& setup, const Calibration& calibration) {
    return predict_numbers(job_under(setup, calibration)).metrics.step_time;
}

Ns measured_step(const MeasuredRun& run, const Report& report) {
    if (run.step)
        return *run.step;
    const auto samples = static_cast<double>(samples_of_step(report.metrics));
    return std::llround(1e9 * (run.tokens_per_second > 0 ? samples * report.tokens / run.tokens_per_second
                                                         : samples / run.samples_per_second));
}

// Adds the name of a run to what is wrong with its plan.
template <class Call>
auto in_run(const std::string& name, Call call) {
    try {
        return call();
    } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}\n  note: this is the plan of run '{}'", error.what(), name));
    }
}

PosedRun posed(const ConfigSource& source, const MeasuredRun& run, const std::string& name, CalibrationResult& result) {
    return in_run(name, [&] {
        Config config = run.path.empty() ? source.load_with(run.set) : load_config(run.path, {});
        refuse_other_workloads(config);
        const Report report = predicted_report(job_under(config, {}), false);
        if (!fits(report))
            result.notes.push_back(fmt::format("run '{}' {}; its step counts all the same", name, [&] {
                std::string text = misfits_of(report);
                return text.substr(0, text.find('\n'));
            }()));
        PosedRun posed{config, measured_step(run, report)};
        result.runs.push_back({name, posed.measured, report.metrics.step_time, 0});
        return posed;
    });
}

}  // namespace

CalibrationResult fit_calibration(const ConfigSource& source, const std::vector<MeasuredRun>& runs,
                                  const Hooks& hooks) {
    CalibrationResult result;
    refuse_other_workloads(source.load_with({}));
    if (runs.empty())
        fail(
            "no measured run is given\n  help: write --run STEP for the plan of the config, as in --run '53.7 s', or "
            "--run parallel.tensor=4=STEP for another plan");
    std::vector<PosedRun> posed_runs;
    for (std::size_t number = 0; number < runs.size(); ++number)
        posed_runs.push_back(posed(source, runs[number], name_of(runs[number], source), result));
    std::vector<Ns> last;
    int simulations = 0;
    const LogErrors errors = [&](const std::vector<double>& factors) {
        last.clear();
        std::vector<double> logs;
        for (const PosedRun& run : posed_runs) {
            if (hooks.stops())
                fail_with(ExitCode::RunFailed, "the calibration was stopped before its end");
            hooks.show(fmt::format("simulation {}", ++simulations));
            last.push_back(step_under(run.setup, calibration_of(factors, 0)));
            logs.push_back(std::log(static_cast<double>(last.back()) / static_cast<double>(run.measured)));
        }
        return logs;
    };
    FactorFit fit = fit_factors(std::size(kFactors), errors);
    fit.factors = rounded(std::move(fit.factors));
    (void)errors(fit.factors);
    for (std::size_t number = 0; number < last.size(); ++number) {
        CalibratedRun& run = result.runs[number];
        run.after = last[number];
        if (std::abs(run.error_after()) > kUnlikely)
            result.notes.push_back(
                fmt::format("run '{}' is predicted {} off: factors near 1 do not explain it; check its plan, its unit, "
                            "what trains it "
                            "(parallel.release) and what it computes in (training.precision)",
                            run.name, print_signed_percent(run.error_after())));
    }
    result.calibration = calibration_of(fit.factors, runs.size());
    result.verdicts = std::move(fit.verdicts);
    result.scatter = fit.scatter;
    return result;
}

std::string calibrated_yaml(const CalibrationResult& result, const ConfigSource& source, const std::string& path) {
    const std::string text = source.text ? *source.text : read_text(source.path, "name a YAML file that can be read");
    std::vector<std::string> set = source.set;
    for (const FactorRow& factor : kFactors)
        set.push_back(fmt::format("calibration.{}={}", factor.name, result.calibration.*factor.value));
    set.push_back(fmt::format("calibration.runs={}", result.calibration.runs));
    std::string runs;
    for (const CalibratedRun& run : result.runs)
        runs += fmt::format("# {}: measured {}, predicted {} ({})\n", escaped_line(run.name), print_time(run.measured),
                            print_time(run.after), print_signed_percent(run.error_after()));
    return fmt::format(
        "# Calibrated by `pipewright calibrate`. Measured steps, and predictions with the block calibration:\n{}{}",
        runs,
        print_given(Yaml::parse(std::make_shared<Source>(source.path, text), set), source.load_with(set),
                    folder_of_config(source.path), folder_of_config(path)));
}

Json to_json(const Calibration& calibration) {
    Json json;
    for (const FactorRow& factor : kFactors)
        json[std::string(factor.name)] = calibration.*factor.value;
    json["runs"] = calibration.runs;
    return json;
}

Json to_json(const CalibrationResult& result) {
    Json json = {{"schema_version", 1}, {"calibration", to_json(result.calibration)}, {"factors", Json::array()}};
    for (std::size_t factor = 0; factor < std::size(kFactors); ++factor)
        json["factors"].push_back({{"key", fmt::format("calibration.{}", kFactors[factor].name)},
                                   {"value", result.calibration.*kFactors[factor].value},
                                   {"verdict", name_of(result.verdicts[factor])}});
    json["scatter"] = result.scatter;
    for (const CalibratedRun& run : result.runs)
        json["runs"].push_back({{"run", run.name},
                                {"measured_ns", run.measured},
                                {"before_ns", run.before},
                                {"after_ns", run.after},
                                {"error_before", run.error_before()},
                                {"error_after", run.error_after()}});
    return json;
}

std::string to_text(const CalibrationResult& result) {
    Table factors({"factor", "value", "of", ""}, true);
    for (std::size_t factor = 0; factor < std::size(kFactors); ++factor)
        factors.add({std::string(kFactors[factor].name),
                     fmt::format("{:.4g}", result.calibration.*kFactors[factor].value),
                     std::string(kFactors[factor].what), std::string(name_of(result.verdicts[factor]))});
    Table runs({"run", "measured", "before", "error", "after", "error"});
    const CalibratedRun* worst = nullptr;
    for (const CalibratedRun& run : result.runs) {
        runs.add({run.name, print_time(run.measured), print_time(run.before), print_signed_percent(run.error_before()),
                  print_time(run.after), print_signed_percent(run.error_after())});
        if (worst == nullptr || std::abs(run.error_after()) > std::abs(worst->error_after()))
            worst = &run;
    }
    const std::string scatter =
        result.runs.size() > 1 ? fmt::format("; the runs scatter by {}", print_percent(result.scatter)) : "";
    return fmt::format("{}\n{}\nlargest error that is left: {} of {}{}\n", factors.print(), runs.print(),
                       print_signed_percent(worst->error_after()), worst->name, scatter);
}

std::string note_on_calibration(const Calibration& calibration) {
    if (calibration == Calibration{})
        return {};
    std::string factors;
    for (const FactorRow& factor : kFactors)
        if (calibration.*factor.value != 1)
            factors += fmt::format("{}{} {:.4g}", factors.empty() ? "" : ", ", factor.name, calibration.*factor.value);
    return fmt::format("calibrated by {} run{}: {}", calibration.runs, calibration.runs == 1 ? "" : "s",
                       factors.empty() ? "all factors are 1" : factors + " times as long as predicted");
}

}  // namespace pw

#include "report/accuracy.h"

#include "report/table.h"
#include "workloads/error.h"
#include "workloads/median.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace pw {

namespace {

constexpr const char* kWriteOne = "write it anew with: pipewright compare CONFIG --json";
constexpr const char* kMeasuredRate = "measured_samples_per_second";
constexpr const char* kPredictedRate = "predicted_samples_per_second";

std::vector<std::string> json_files(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.is_regular_file(error) && entry.path().extension() == ".json")
            files.push_back(entry.path().string());
    if (error)
        fail("cannot read '{}': {}\n  help: check the permissions of the folder", folder, error.message());
    std::sort(files.begin(), files.end());
    return files;
}

void require_number(const Json& point, const char* key, const std::string& path, std::size_t index) {
    if (!point.is_object() || !point.contains(key) || !point[key].is_number())
        fail("'{}': point {} has no number '{}'\n  help: a point is what compare --json prints", path, index, key);
}

// A number that was not finite is null in JSON: then it is not known.
void require_number_or_none(const Json& point, const char* key, const std::string& path, std::size_t index) {
    if (point.contains(key) && !point[key].is_null())
        require_number(point, key, path, index);
}

double number_or_zero(const Json& point, const char* key) {
    return point.contains(key) && point[key].is_number() ? point[key].get<double>() : 0;
}

std::vector<double> absolute_values(const Json& points, const char* key) {
    std::vector<double> values;
    for (const Json& point : points)
        values.push_back(std::abs(point[key].get<double>()));
    std::sort(values.begin(), values.end());
    return values;
}

ErrorColumn column_of(const Json& points, const char* key) {
    const std::vector<double> sizes = absolute_values(points, key);
    ErrorColumn column{key, mean_median(sizes), sizes[(sizes.size() * 95 + 99) / 100 - 1], 0};
    for (const Json& point : points)
        column.bias += point[key].get<double>() / static_cast<double>(points.size());
    return column;
}

void add_columns(Accuracy& accuracy) {
    for (const auto& [key, value] : accuracy.points.front().items())
        if (key.ends_with("_error") && key != "step_time_error" && key != "peak_memory_error" &&
            std::all_of(accuracy.points.begin(), accuracy.points.end(),
                        [&name = key](const Json& point) { return point.contains(name) && point[name].is_number(); }))
            accuracy.columns.push_back(column_of(accuracy.points, key.c_str()));
}

// Pairs of points that were measured more than 3 % apart.
struct Pairs {
    int right = 0, wrong = 0;  // predicted in the order in which they were measured, or reversed
    int equal = 0;             // predicted equal: neither
};

void count_pairs(const Json& points, Pairs& pairs) {
    constexpr double kApart = 1.03;
    const auto measured = [](const Json& point) { return number_or_zero(point, kMeasuredRate); };
    const auto predicted = [](const Json& point) { return number_or_zero(point, kPredictedRate); };
    for (std::size_t k = 0; k < points.size(); ++k)
        for (std::size_t other = 0; other < k; ++other) {
            const double a = measured(points[k]), b = measured(points[other]);
            if (a <= 0 || b <= 0 || std::max(a, b) <= kApart * std::min(a, b))
                continue;
            const double c = predicted(points[k]), d = predicted(points[other]);
            ++(c == d ? pairs.equal : (a > b) == (c > d) ? pairs.right : pairs.wrong);
        }
}

void summarise(Accuracy& accuracy) {
    const ErrorColumn step = column_of(accuracy.points, "step_time_error");
    accuracy.step_time_error_median_abs = step.median_abs;
    accuracy.step_time_error_p95_abs = step.p95_abs;
    accuracy.step_time_error_bias = step.bias;
    add_columns(accuracy);
    accuracy.peak_memory_error_max_abs = absolute_values(accuracy.points, "peak_memory_error").back();
}

}  // namespace

Accuracy read_accuracy(const std::string& folder) {
    Accuracy accuracy;
    Pairs pairs;
    for (const std::string& path : json_files(folder)) {
        const Json json = parse_json<Json>(read_text(path, kWriteOne), fmt::format("'{}'", path));
        if (!json.is_object() || !json.contains("points"))
            continue;
        if (!json["points"].is_array())
            fail("'{}': 'points' is no list, but {}\n  help: {}", path, json["points"].type_name(), kWriteOne);
        std::size_t index = 0;
        for (const Json& point : json["points"]) {
            require_number(point, "step_time_error", path, index);
            require_number(point, "peak_memory_error", path, index);
            require_number_or_none(point, kMeasuredRate, path, index);
            require_number_or_none(point, kPredictedRate, path, index);
            accuracy.points.push_back(point);
            ++index;
        }
        count_pairs(json["points"], pairs);
    }
    if (accuracy.points.empty())
        fail(
            "'{}' holds no accuracy table and no checkpoint\n  help: a table is a *.json with a list 'points' of what "
            "compare --json prints; a checkpoint is a folder step-N, which `run --checkpoint FOLDER` writes",
            folder);
    summarise(accuracy);
    if (const int all = pairs.right + pairs.wrong + pairs.equal; all > 0)
        accuracy.kendall_tau = static_cast<double>(pairs.right - pairs.wrong) / all;
    return accuracy;
}

Json to_json(const Accuracy& accuracy) {
    Json columns = Json::object();
    for (const ErrorColumn& column : accuracy.columns)
        columns[column.key] = {{"median_abs", column.median_abs}, {"p95_abs", column.p95_abs}, {"bias", column.bias}};
    return {{"schema_version", 1},
            {"kind", "results"},
            {"points", accuracy.points},
            {"step_time_error_median_abs", accuracy.step_time_error_median_abs},
            {"step_time_error_p95_abs", accuracy.step_time_error_p95_abs},
            {"step_time_error_bias", accuracy.step_time_error_bias},
            {"peak_memory_error_max_abs", accuracy.peak_memory_error_max_abs},
            {"columns", std::move(columns)},
            {"kendall_tau", accuracy.kendall_tau ? Json(*accuracy.kendall_tau) : Json()}};
}

std::string to_text(const Accuracy& accuracy) {
    Table table({"point", "step time error", "peak memory error"});
    for (std::size_t index = 0; index < accuracy.points.size(); ++index) {
        const Json& point = accuracy.points[index];
        const bool named = point.contains("name") && point["name"].is_string();
        table.add({named ? point["name"].get<std::string>() : std::to_string(index),
                   print_signed_percent(point["step_time_error"]), print_signed_percent(point["peak_memory_error"])});
    }
    std::string columns;
    for (const ErrorColumn& column : accuracy.columns)
        columns += fmt::format("{}: median {}, p95 {}, bias {}\n", column.key, print_percent(column.median_abs),
                               print_percent(column.p95_abs), print_signed_percent(column.bias));
    if (accuracy.kendall_tau)
        columns += fmt::format("Kendall's tau of pairs measured more than 3 % apart: {:.3f}\n", *accuracy.kendall_tau);
    return fmt::format(
        "{}\n{} points   step time error: median {}, p95 {}, bias {}   peak memory error: largest {}\n{}",
        table.print(), accuracy.points.size(), print_percent(accuracy.step_time_error_median_abs),
        print_percent(accuracy.step_time_error_p95_abs), print_signed_percent(accuracy.step_time_error_bias),
        print_percent(accuracy.peak_memory_error_max_abs), columns);
}

}  // namespace pw

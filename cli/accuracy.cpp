#include "cli/accuracy.h"

#include "cli/table.h"
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

std::vector<double> absolute_values(const Json& points, const char* key) {
    std::vector<double> values;
    for (const Json& point : points)
        values.push_back(std::abs(point[key].get<double>()));
    std::sort(values.begin(), values.end());
    return values;
}

void summarise(Accuracy& accuracy) {
    const std::vector<double> step = absolute_values(accuracy.points, "step_time_error");
    accuracy.step_time_error_median_abs = mean_median(step);
    accuracy.step_time_error_p95_abs = step[(step.size() * 95 + 99) / 100 - 1];
    for (const Json& point : accuracy.points)
        accuracy.step_time_error_bias +=
            point["step_time_error"].get<double>() / static_cast<double>(accuracy.points.size());
    accuracy.peak_memory_error_max_abs = absolute_values(accuracy.points, "peak_memory_error").back();
}

}  // namespace

Accuracy read_accuracy(const std::string& folder) {
    Accuracy accuracy;
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
            accuracy.points.push_back(point);
            ++index;
        }
    }
    if (accuracy.points.empty())
        fail(
            "'{}' holds no accuracy table\n  help: one is a *.json with a list 'points' of what compare --json prints; "
            "checkpoints are not in this version",
            folder);
    summarise(accuracy);
    return accuracy;
}

Json json_of(const Accuracy& accuracy) {
    return {{"schema_version", 1},
            {"kind", "results"},
            {"points", accuracy.points},
            {"step_time_error_median_abs", accuracy.step_time_error_median_abs},
            {"step_time_error_p95_abs", accuracy.step_time_error_p95_abs},
            {"step_time_error_bias", accuracy.step_time_error_bias},
            {"peak_memory_error_max_abs", accuracy.peak_memory_error_max_abs}};
}

std::string print(const Accuracy& accuracy) {
    Table table({"point", "step time error", "peak memory error"});
    for (std::size_t index = 0; index < accuracy.points.size(); ++index) {
        const Json& point = accuracy.points[index];
        const bool named = point.contains("name") && point["name"].is_string();
        table.add({named ? point["name"].get<std::string>() : std::to_string(index),
                   print_signed_percent(point["step_time_error"]), print_signed_percent(point["peak_memory_error"])});
    }
    return fmt::format("{}\n{} points   step time error: median {}, p95 {}, bias {}   peak memory error: largest {}\n",
                       table.print(), accuracy.points.size(), print_percent(accuracy.step_time_error_median_abs),
                       print_percent(accuracy.step_time_error_p95_abs),
                       print_signed_percent(accuracy.step_time_error_bias),
                       print_percent(accuracy.peak_memory_error_max_abs));
}

}  // namespace pw

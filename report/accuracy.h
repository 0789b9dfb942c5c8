// Stored accuracy tables: every *.json of a folder that has a list `points`. Each point is a comparison with at least
// step_time_error and peak_memory_error.
#pragma once

#include "report/json.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace pw {

// What a key "..._error" of the points says, where all of them have it.
struct ErrorColumn {
    std::string key;
    double median_abs = 0, p95_abs = 0, bias = 0;  // by nearest rank, and the mean of the signed errors
};

struct Accuracy {
    Json points = Json::array();       // as stored, in order of file names
    std::vector<ErrorColumn> columns;  // apart from step_time_error and peak_memory_error
    // Kendall's tau of predicted and measured samples per second, over all pairs of points that were measured more than
    // 3 % apart in a file: the pairs in the right order less the pairs in the wrong order, over all pairs. Pairs that
    // are predicted equal are in neither order. Nothing where no file has both rates.
    std::optional<double> kendall_tau;
    double step_time_error_median_abs = 0;
    double step_time_error_p95_abs = 0;  // nearest rank
    double step_time_error_bias = 0;     // mean of the signed errors
    double peak_memory_error_max_abs = 0;
};

// Reads the tables of a folder. Throws Error (BadInput) naming the file and the point with something missing.
Accuracy read_accuracy(const std::string& folder);
Json to_json(const Accuracy& accuracy);
std::string to_text(const Accuracy& accuracy);

}  // namespace pw

// Stored accuracy tables: they are every *.json of a folder that has a list `points`, each point a comparison with at
// least step_time_error and peak_memory_error.
#pragma once

#include "cli/report.h"

#include <nlohmann/json.hpp>

#include <string>

namespace pw {

struct Accuracy {
    Json points = Json::array();  // as stored, in order of file names
    double step_time_error_median_abs = 0;
    double step_time_error_p95_abs = 0;  // nearest rank
    double step_time_error_bias = 0;     // mean of the signed errors
    double peak_memory_error_max_abs = 0;
};

// Reads the tables of a folder. It throws Error (BadInput) naming the file and the point with something missing.
Accuracy read_accuracy(const std::string& folder);
Json json_of(const Accuracy& accuracy);
std::string print(const Accuracy& accuracy);

}  // namespace pw

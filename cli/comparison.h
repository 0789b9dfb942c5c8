// Errors of a prediction: signed, (predicted - measured) / measured.
#pragma once

#include "cli/report.h"

#include <map>
#include <string>

namespace pw {

struct Comparison {
    double step_time_error = 0;
    double peak_memory_error = 0;          // of the device with the largest absolute error
    double task_time_error_median = 0;     // over F B I W R of the steps that the metrics are from
    std::map<Op, double> task_time_error;  // medians by operation, transfers left out
};

// NaN where something was predicted and nothing measured.
Comparison comparison_of(const Report& predicted, const Report& measured);
std::string print(const Comparison& comparison, const Report& predicted, const Report& measured);

}  // namespace pw

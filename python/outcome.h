// What a call from Python returns: functions of what report/ returned, of whatever type.
#pragma once

#include "report/json.h"
#include "report/report.h"
#include "report/sweep.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

struct Outcome {
    Notices notes = {};
    std::function<Json()> json = {};
    std::function<std::string(std::size_t most)> text = {};  // a table has at most this many rows
    std::function<Chart(const SweepView&)> chart = {};       // null where there is none. Sweeps alone have axes
    // A picture that is no chart, null for none.
    std::function<void(const std::string& file, const View& view)> plot = {};
    // The best plan's config, as YAML for that file, or with whole paths if `file` is empty. Null where there is no
    // plan.
    std::function<std::string(const std::string& file)> config = {};
    std::vector<std::shared_ptr<const Report>> reports = {};  // of one plan each
    std::vector<std::optional<Error>> errors = {};            // of points that have no report, by point
};

// Returns the outcome of a value that has to_json(value).
template <class Value>
Outcome outcome_of(std::shared_ptr<const Value> value, Notices notes) {
    Outcome outcome{std::move(notes)};
    outcome.json = [value] { return to_json(*value); };
    return outcome;
}

}  // namespace pw

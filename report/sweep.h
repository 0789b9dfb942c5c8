// Every combination of the values of some keys, simulated.
#pragma once

#include "report/config_source.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/report.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct SweepPoint {
    std::vector<std::string> texts;  // the value of every axis, in their order
    std::optional<Report> report;    // absent where there is an error
    std::optional<Error> error;
};

struct Sweep {
    std::vector<SweepAxis> axes;
    std::vector<SweepPoint> points;  // the last axis is the fastest
    // The point with the most tokens or samples per second (counts_tokens()) among points that fit, and the same among
    // asynchronous plans, which learn something else. `best` is asynchronous only where no plan flushes. Absent where
    // none fits.
    std::optional<std::size_t> best, best_asynchronous;
    Notices notes = {};  // of all points, each once
};

// Simulates all points of the axes. The block `sweep` of the config is not read. The value "all" of pipeline.schedule
// means the same as in schedules_in(). A stopped sweep has the points so far. Throws Error: BadInput at `sweep` where
// there are more than 10,000 points, or times of unlike micro-batches cannot be compared. Throws the first point's
// error where no point can be simulated.
Sweep simulate_sweep(const ConfigSource& source, const std::vector<SweepAxis>& axes, const Hooks& hooks = {},
                     bool with_events = false);

// Returns the names in "gpipe,1f1b". "all" gives the name of every schedule that trains. Throws Error (BadInput) where
// a name is not a schedule's.
std::vector<std::string> schedules_in(const std::string& list);
// Simulates the config under each schedule. Returns a sweep whose points are ranked: points that fit by tokens or
// samples per second, then points that do not fit, last points that cannot be simulated. Throws as simulate_sweep()
// does.
Sweep simulate_schedules(const ConfigSource& source, const std::vector<std::string>& schedules, const Hooks& hooks = {},
                         bool with_events = false);

// Returns short names of the axes: "micro_batches" for pipeline.micro_batches, the whole key where two keys end alike.
std::vector<std::string> short_names(const std::vector<SweepAxis>& axes);
// Returns the setting of a point, "micro_batches 8, bandwidth 10 GB/s".
std::string setting_of(const Sweep& sweep, std::size_t point);

// The points have their devices if there are at most 100,000 in all.
Json to_json(const Sweep& sweep);
std::string to_text(const Sweep& sweep);  // a row per point, and the best points

// Whether a point was simulated and its plan never flushes.
bool is_asynchronous(const SweepPoint& point);
// Whether points are compared by tokens per second and not by samples: if all have tokens, and share a cluster or have
// samples of unlike lengths.
bool counts_tokens(const Sweep& sweep);
// Returns the tokens or samples per second of a point that was simulated. Steps of points with unlike mini-batches
// cannot be compared.
double rate_of(const SweepPoint& point, bool of_tokens);
// Returns the memory that all devices of all points have if it is the same and limited. Else kUnlimited.
Bytes common_limit_of(const Sweep& sweep);
// Return the numbers of a point as its row in the table shows them, and their heads. `limit`: common_limit_of(),
// `of_tokens`: counts_tokens().
std::vector<std::string> fact_heads(const Sweep& sweep);
std::vector<std::string> facts_of(const SweepPoint& point, Bytes limit, bool of_tokens);

// What the chart of a sweep shows: keys or numbers by name (empty: as suits).
struct SweepView {
    std::string x = {};  // a key, or a number
    std::string y = {};  // a number, or a key for a map of two keys
    std::string z = {};  // the number in the cells of a map
};
std::string sweep_numbers();  // their names: "samples/s, step-time, ..."
// Throws Error (BadInput) where a name is neither a key of the sweep nor a number, or where they do not go together.
void check_drawable(const std::vector<SweepAxis>& axes, const SweepView& view);
// Returns a line over the values of a key with numbers for each combination of the remaining keys, bars over names, or
// a map of coloured cells. The default numbers are samples or tokens per second. The best point is marked. `missing`
// receives notes on the points that are not in the chart. Throws Error as check_drawable() does, and where the workload
// has no tokens.
Chart chart_of(const Sweep& sweep, Notices& missing, const SweepView& view = {});

}  // namespace pw

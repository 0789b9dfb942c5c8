// A trace with its numbers, as simulate, run and compare print it.
#pragma once

#include "job/config/config.h"
#include "schedules/trace/trace.h"
#include "search/predict.h"
#include "sim/metrics.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace pw {

using Json = nlohmann::ordered_json;

struct Report {
    Trace trace;
    Metrics metrics;
    std::vector<Bytes> limits;       // memory per device; kUnlimited where none is known
    std::vector<std::string> names;  // names of the devices
};

Report report_of(Trace trace);  // for a plan that is known to the trace alone
// Of a checked trace of any program: numbers of nonsense are nonsense. Several files are those of its ranks.
Report read_report(const std::vector<std::string>& paths);
Report report_of(Trace trace, const Config& config);               // with the memory and names of the config's devices
Report report_of(PredictedNumbers numbers, const Config& config);  // its trace has no events

Bytes needed_of(const DeviceMetrics& device);  // what is reserved, or the peak where a trace does not say it
bool fits(const Report& report);
Bytes largest_peak(const Report& report);      // of all devices
Bytes largest_reserved(const Report& report);  // of all devices, as needed_of() counts
// Returns lines like "device 1 needs 18.2 GiB and has 16 GiB: 2.2 GiB over", one per device; empty when all fit.
std::string print_misfits(const Report& report);

Json json_of(const Report& report);  // the keys that simulate and run share, schema_version first
// Returns the table of the devices and the line of totals.
std::string print(const Report& report);
// Returns a title like "predicted, 1f1b: step 812.3 ms, bubble 11.2 %".
std::string title_of(const Report& report);

void print_json(const Json& json);  // on stdout

}  // namespace pw

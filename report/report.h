// A trace, its metrics and the devices that produced it. The trace is predicted or measured.
#pragma once

#include "job/job.h"
#include "job/setup/setup.h"
#include "report/json.h"
#include "report/order_gap.h"
#include "schedules/trace/trace.h"
#include "search/step_parts.h"
#include "sim/metrics.h"
#include "workloads/transformers/error_bands.h"
#include "workloads/transformers/pass_parts.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// What a cluster does that runs a transformer in replicas of the plan.
struct ClusterRate {
    int devices = 0, replicas = 0;
    double tokens_per_second = 0;
    double utilisation = 0;               // FLOPs of the model per second, of the peak of all devices (MFU)
    std::optional<PassParts> parts = {};  // seconds of a step of training, the mean over the devices
    std::optional<StepParts> step = {};   // parts_of_step()
    std::string degrees = {};             // "tensor 8, data 4, ZeRO 1"
    const ErrorBand* band = nullptr;      // around the step of a prediction (null: no training)
};

bool trains(const Plan& plan);  // whether the plan makes gradients of weights
// Returns the rate of the cluster whose plan is the setup's, without parts. A plan of forwards does not train.
ClusterRate cluster_rate(const Setup& setup, double samples_per_second, bool trains = true);

struct Report {
    Trace trace;
    Metrics metrics;
    std::vector<Bytes> limits;       // memory per device (kUnlimited where none is known)
    std::vector<std::string> names;  // names of the devices
    int tokens = 0;                  // of a sample, where the model reads tokens
    std::optional<ClusterRate> cluster = {};
    std::optional<OrderGap> order_gap = {};  // of a prediction
};

// Returns the report of a trace, predicted or measured. Devices beyond `devices` have numbers for names and no limit.
Report report_of(Trace trace, const std::vector<DeviceConfig>& devices = {});
// Returns the prediction of a job. Without its events the trace of a plan of very many tasks needs little memory.
// Throws Error as predict() does.
Report predicted_report(const Job& job, bool with_events = true);
// Returns the parts of a job's predicted step. Returns nothing if the job is not a transformer in training, if
// micro-batches have different lengths, if updates need no flush, or if stages are recomputed by tasks of their own.
std::optional<StepParts> parts_of_step(const Job& job, const Metrics& metrics);
// Reads the trace of any program. Several files are the traces of its ranks. Adds to `notes` what people should know.
// Throws Error (BadInput) where the trace contradicts itself.
Report read_report(const std::vector<std::string>& paths, Notices& notes,
                   const std::vector<std::string>& patterns = {});  // of names of tasks

bool fits(const Report& report);
// Returns tokens per second, or samples per second of a model that reads no tokens.
double work_rate_of(const Report& report);
std::string print_rate(double per_second, bool of_tokens);  // "16.4", "131070": four digits, five of tokens
// Returns the samples between two updates, on all replicas.
std::int64_t samples_of_step(const Metrics& metrics);
Bytes largest_peak(const Report& report);      // of all devices
Bytes largest_reserved(const Report& report);  // of all devices, as DeviceMetrics::needed_memory() counts
// Returns lines like "device 1 needs 18.2 GiB and has 16 GiB: 2.2 GiB over", a line per device. Empty when all fit.
std::string misfits_of(const Report& report);

Json to_json(const Report& report);
Json to_json(const Report& report, const Job& job);  // of the job's prediction, with the source of its costs
// Returns the table of the devices and the line of totals.
std::string to_text(const Report& report);
// Returns a title like "predicted, 1f1b: step 812.3 ms, bubble 11.2 %".
std::string title_of(const Report& report);
// Returns the events that a picture shows: the step of the metrics, or the first mini-batches of an asynchronous plan.
Trace drawn_part_of(const Report& report);

}  // namespace pw

// Discrete-event simulation of a plan: predicted trace from costs, links and memory.
#pragma once

#include "schedules/memory/buffers.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/trace/trace.h"
#include "sim/explanation.h"
#include "sim/metrics.h"
#include "sim/samples.h"
#include "workloads/costs/costs.h"

#include <functional>
#include <memory>

namespace pw {

struct Proof;  // schedules/passes/passes.h

inline constexpr const char* kPredicted = "predicted";  // the label of a simulated trace

// Simulates a plan. It is deterministic: the same arguments give the same trace, byte for byte. A synchronous plan
// gives a single step, an asynchronous plan its whole run. Throws Error (Infeasible) when the plan deadlocks, naming
// what every device waits for.
Trace simulate(const Plan& plan, const Costs& costs, TransferMode mode = {});

// Simulates a plan under the costs of many splits: everything that depends on the plan alone is made once.
// `mode.sent_copies` is keeps_copies() of the costs that follow.
class Simulator {
public:
    Simulator(Plan plan, TransferMode mode);
    // Takes the existing proof of that very plan.
    Simulator(std::shared_ptr<const Plan> plan, std::shared_ptr<const Proof> proof,
              std::shared_ptr<const VersionTable> versions, TransferMode mode);
    ~Simulator();
    Simulator(Simulator&&) noexcept;

    Trace trace(const Costs& costs);
    std::vector<TraceEvent> events(const Costs& costs);  // the events of trace(), in a fraction of the time
    // The same as metrics_of(trace(costs)), in far less memory. `head` is a trace of the plan without events, with the
    // sizes of micro-batches.
    Metrics metrics(const Costs& costs, const Trace& head);
    Ns step_time(const Costs& costs);  // Metrics::step_time of metrics()
    // Explains the step time. Throws Error (BadInput) where devices slow each other down, as sample() does.
    Explanation explain(const Costs& costs);
    // Draws `draws` step times on `threads` threads, whose number does not change them. Throws Error (BadInput) if
    // devices slow each other down: the order of their tasks then changes from draw to draw. All threads ask
    // `should_stop`. Once it returns true, there are only the first draws.
    Samples sample(const Costs& costs, const Jitter& jitter, int draws, std::uint64_t seed, int threads,
                   const std::function<bool()>& should_stop = {});
    // The same as trace(), from the queue of events, which devices that share something need. Tests compare both.
    Trace trace_by_events(const Costs& costs);

private:
    std::unique_ptr<class Simulation> simulation_;
};

}  // namespace pw

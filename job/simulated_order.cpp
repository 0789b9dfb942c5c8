#include "job/simulated_order.h"

#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/versions.h"
#include "schedules/trace/trace.h"
#include "sim/metrics.h"
#include "sim/simulate.h"

#include <algorithm>
#include <memory>

namespace pw {

namespace {

bool lacks_none(const std::vector<Bytes>& missing) {
    return std::ranges::all_of(missing, [](Bytes bytes) { return bytes == 0; });
}

// Returns the memory that devices lack. What does not fit by its peak is not packed.
std::vector<Bytes> missing_memory(const Plan& plan, const std::vector<Buffer>& buffers, const Costs& costs,
                                  const std::vector<Bytes>& memory) {
    const Rows on_device = by_device(buffers, plan.shape.devices);
    std::vector<Bytes> missing;
    for (std::size_t device = 0; device < memory.size(); ++device) {
        const Bytes peak = total(peak_of(plan.order[device], buffers, on_device[static_cast<int>(device)]));
        missing.push_back(std::max<Bytes>(0, peak - memory[device]));
    }
    if (costs.has_arena && lacks_none(missing)) {
        const std::vector<Bytes> reserved = needed_by(plan, buffers, costs, memory);
        for (std::size_t device = 0; device < memory.size(); ++device)
            missing[device] = std::max<Bytes>(0, reserved[device] - memory[device]);
    }
    return missing;
}

}  // namespace

SimulatedOrder simulated_order(const ProvenPlan& proven, const Costs& costs, TransferMode mode,
                               const std::vector<Bytes>& memory) {
    mode.sent_copies = keeps_copies(costs, mode.early_receive());
    const auto plan = std::make_shared<const Plan>(proven.plan);
    const auto versions = std::make_shared<const VersionTable>(versions_of(*plan));
    Trace trace = without_hash(*plan);
    trace.events = Simulator(plan, proven.proof, versions, mode).events(costs);
    const Metrics metrics = metrics_of(trace);
    SimulatedOrder order{{metrics.makespan, metrics.span}};
    order.missing =
        missing_memory(*plan, buffers_of(*plan, *proven.proof, costs, *versions, mode.early_receive()), costs, memory);
    order.fits = lacks_none(order.missing);
    return order;
}

}  // namespace pw

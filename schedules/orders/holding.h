// What a device holds of a shape. Schedules that order each device separately start from it.
#pragma once

#include "schedules/orders/schedule.h"
#include "schedules/plan/shape_index.h"

#include <vector>

namespace pw {

struct Holding {
    const Shape& shape;
    int device;
    std::vector<int> stages;        // ascending
    std::vector<int> microbatches;  // that its stages serve, ascending
    int holders;                    // of its first stage
    int devices_before;             // devices that hold the stages before its first stage

    int only_stage() const;  // throws Error (BadInput) unless it holds a single stage
    bool serves(int stage, int microbatch) const { return shape.server_of(stage, microbatch) == device; }
};

class Holdings {
public:
    explicit Holdings(const Shape& shape);  // keeps a reference
    Holding of(int device) const;

private:
    const Shape& shape_;
    ShapeIndex index_;
    std::vector<int> devices_before_;  // by stage
};

// Returns the orders of all devices for a schedule that orders each device by what it holds.
template <Tasks (*order)(const Holding&, const ScheduleOptions&)>
std::vector<Tasks> on_each_device(const Request& request) {
    const Holdings holdings(request.shape);
    std::vector<Tasks> all;
    for (int device = 0; device < request.shape.devices; ++device)
        all.push_back(order(holdings.of(device), request.options));
    return all;
}

// Return how many of its own micro-batches a device of one stage runs ahead of the devices after it, and how many it
// lags, times `times`, plus `more`: p - 1 - d and d if every stage has one device. The r holders of a stage share the
// micro-batches: of R devices with q before the stage, each runs (R - 1 - q) / r ahead (PipeDream's 1F1B-RR). This
// causes no cycle of waits. With a lead of a, F(s, i), the forward of micro-batch i on stage s, waits for the backward
// B(s, i - (a + 1) r) and no later backward. B(s, i) waits at most for F(s, i + a' r'), which the later stage s' runs
// first, and a' r' < (a + 1) r.
int lead_of(const Holding& own, int times = 1, int more = 0);
int lag_of(const Holding& own, int times = 1);

}  // namespace pw

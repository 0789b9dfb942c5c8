// What one device holds of a shape: schedules whose devices are ordered one by one start from it.
#pragma once

#include "schedules/orders/schedule.h"
#include "schedules/plan/shape_index.h"

#include <vector>

namespace pw {

struct Holding {
    const Shape& shape;
    int device;
    std::vector<int> stages;        // ascending
    std::vector<int> microbatches;  // that it serves on any of its stages, ascending
    int holders;                    // of its first stage
    int devices_before;             // that hold the stages before that one

    int only_stage() const;  // throws Error (BadInput) when it holds not exactly one
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

// Returns the orders of all devices of a schedule that orders each by what it holds.
template <Tasks (*order)(const Holding&, const ScheduleOptions&)>
std::vector<Tasks> on_each_device(const Request& request) {
    const Holdings holdings(request.shape);
    std::vector<Tasks> all;
    for (int device = 0; device < request.shape.devices; ++device)
        all.push_back(order(holdings.of(device), request.options));
    return all;
}

// Return by how many of its own micro-batches a device of one stage runs ahead of, or lags, those around it,
// `times` over: p - 1 - d and d where every stage has one device. The r holders of a stage share the micro-batches: of
// R devices in all, with q before the stage, each runs (R - 1 - q) / r ahead (PipeDream's 1F1B-RR). No circle of waits
// comes of it. With a ahead, F(s, i), the forward of micro-batch i on stage s, waits for the backward B(s, i - (a + 1)
// r) and no later one; B(s, i) waits for F(s, i + a' r') at most, which the later stage s' runs first; and a' r' < (a +
// 1) r.
int share_ahead(const Holding& own, int times = 1);
int share_behind(const Holding& own, int times = 1);

}  // namespace pw

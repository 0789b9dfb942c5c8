#include "schedules/orders/holding.h"

#include "workloads/error.h"

#include <algorithm>
#include <span>

namespace pw {

int Holding::only_stage() const {
    if (stages.size() != 1)
        fail_about(
            {Setting::Stages},
            "this schedule places one stage on each device: device {} would hold {} of {} stages\n  help: set the "
            "number of stages to that of devices, {}",
            device, stages.size(), shape.stages, shape.devices);
    return stages.front();
}

Holdings::Holdings(const Shape& shape) : shape_(shape), index_(shape) {
    int before = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
        devices_before_.push_back(before);
        before += static_cast<int>(index_.devices_of(stage).size());
    }
}

Holding Holdings::of(int device) const {
    const std::span<const int> stages = index_.stages_of(device);
    Holding own{shape_, device, {stages.begin(), stages.end()}, {}, 0, 0};
    if (stages.empty())
        return own;
    own.holders = static_cast<int>(index_.devices_of(stages.front()).size());
    own.devices_before = devices_before_[stages.front()];
    for (int mb = 0; mb < shape_.microbatches; ++mb)
        if (std::any_of(stages.begin(), stages.end(), [&](int stage) { return own.serves(stage, mb); }))
            own.microbatches.push_back(mb);
    return own;
}

int lead_of(const Holding& own, int times, int more) {
    return (times * (own.shape.devices - 1 - own.devices_before) + more) / own.holders;
}

int lag_of(const Holding& own, int times) { return times * own.devices_before / own.holders; }

}  // namespace pw

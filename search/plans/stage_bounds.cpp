#include "search/plans/stage_bounds.h"

#include "workloads/bounded.h"

namespace pw {

StageBounds::StageBounds(const Plan& plan, const Setup& setup, Ns dispatch, const Pieces& pieces,
                         const SliceEndRange& slices)
    : plan_(plan, dispatch, setup, slices), pieces_(pieces), stages_(setup.pipeline.stages) {
    for (const DeviceConfig& device : setup.cluster.devices) {
        speeds_.push_back(device.speed);
        limited_ = limited_ || device.memory != kUnlimited;
        same_speed_ = same_speed_ && device.speed == speeds_.front();
    }
}

Bytes StageBounds::shortage(int stage, const Piece& piece) const {
    if (!limited_)
        return 0;
    const Bytes needs = plan_.memory(stage, piece), has = plan_.available(stage);
    return needs > has ? needs - has : 0;
}

Ns StageBounds::step_time(int stage, const Piece& piece) const {
    return shortage(stage, piece) > 0 ? kNeverFits : plan_.time(stage, piece);
}

Ns StageBounds::work(int stage, const Piece& piece) const {
    if (shortage(stage, piece) > 0)
        return kNeverFits;
    return bounded(static_cast<double>(plan_.passes_of(piece)) / speeds_[plan_.device_of(stage)]);
}

}  // namespace pw

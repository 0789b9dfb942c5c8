#include "search/clusters/block_room.h"

#include "schedules/plan/shape_index.h"
#include "search/exposed_work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace pw {

int SplitParts::blocks() const {
    return std::accumulate(runs.begin(), runs.end(), 0, [](int sum, const Run& run) { return sum + run.blocks; });
}

BlockRoom::BlockRoom(const OrderFacts& facts, const ShapeIndex& index, const SplitParts& parts,
                     const std::vector<DeviceConfig>& devices)
    : facts_(facts), index_(index), parts_(parts), devices_(devices) {
    for (int device = 0; device < facts.shape.devices; ++device) {
        bytes_.push_back(without_ends(device));
        least_bytes_.push_back(least_bytes_of(device));
        blocks_.push_back(room_of(device));
    }
}

// Devices have room for all blocks, and enough bytes for each block where it takes least.
bool BlockRoom::may_fit() const {
    double room = 0, left = 0, needed = 0;
    for (const double blocks : blocks_)
        room += std::max(0.0, blocks);
    for (const double bytes : bytes_)
        left += std::max(0.0, bytes);
    for (std::size_t run = 0; run < parts_.runs.size(); ++run) {
        double least = std::numeric_limits<double>::infinity();
        for (const std::vector<double>& of_device : least_bytes_)
            least = std::min(least, of_device[run]);
        needed += parts_.runs[run].blocks * least;
    }
    const auto copies = static_cast<double>(index_.devices_of(0).size());
    return *std::ranges::min_element(blocks_) >= 0 && room >= copies * parts_.blocks() &&
           left >= copies * needed * kNoMore;
}

double BlockRoom::bytes_on(int device, int stage, const SplitParts::Run& run) const {
    double saved = 0;
    for (const OrderFacts::Held& held : facts_.held[static_cast<std::size_t>(device)])
        if (held.stage == stage)
            saved += saved_on(device, held, run);
    return persistent(device, run.stage) + saved;
}

bool BlockRoom::holds(int device, int stage) const { return std::ranges::count(index_.devices_of(stage), device) > 0; }

const StageBytes& BlockRoom::sizes_of(int device, int stage) const {
    const std::vector<StageBytes>& sizes = parts_.costs.times_on(device).sizes;
    return (sizes.empty() ? parts_.costs.bytes : sizes)[static_cast<std::size_t>(stage)];
}

double BlockRoom::persistent(int device, int stage) const {
    return static_cast<double>(persistent_of(sizes_of(device, stage), parts_.costs.kept));
}

double BlockRoom::saved_on(int device, const OrderFacts::Held& held, const SplitParts::Run& run) const {
    if (!parts_.knows_saved)
        return 0;
    const double length = facts_.shape.slices == 1 ? 1 : parts_.costs.length_of(held.slice, run.stage).bytes * kNoMore;
    return length * static_cast<double>(saved_of(held, sizes_of(device, run.stage)));
}

double BlockRoom::without_ends(int device) const {
    const Bytes has = devices_[static_cast<std::size_t>(device)].memory;
    if (has == kUnlimited)
        return std::numeric_limits<double>::infinity();
    const int head = static_cast<int>(parts_.costs.stage.size()) - 1;
    return static_cast<double>(has) - ((holds(device, 0) ? persistent(device, 0) : 0) +
                                       (holds(device, facts_.shape.stages - 1) ? persistent(device, head) : 0));
}

std::vector<double> BlockRoom::least_bytes_of(int device) const {
    std::vector<double> least;
    for (const SplitParts::Run& run : parts_.runs) {
        std::map<int, double> saved;  // by stage
        for (const OrderFacts::Held& held : facts_.held[static_cast<std::size_t>(device)])
            saved[held.stage] += saved_on(device, held, run);
        const auto first = std::ranges::min_element(saved, {}, [](const auto& on_stage) { return on_stage.second; });
        least.push_back(persistent(device, run.stage) + first->second);
    }
    return least;
}

double BlockRoom::room_of(int device) const {
    const double each = std::ranges::min(least_bytes_[static_cast<std::size_t>(device)]);
    const double bytes = bytes_of(device);
    if (std::isinf(bytes) || each <= 0)
        return std::numeric_limits<double>::infinity();
    return bytes < 0 ? -1 : std::floor(bytes / each);
}

}  // namespace pw

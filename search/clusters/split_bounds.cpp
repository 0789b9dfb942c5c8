#include "search/clusters/split_bounds.h"

#include "job/transformer_job.h"
#include "schedules/plan/shape_index.h"
#include "search/exposed_work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

namespace pw {

namespace {

enum Part { kEmbedding, kFirstBlock, kOtherBlocks, kHead };

// The times of a micro-batch or of a slice, without the time to dispatch.
struct Work {
    double forward = 0, backward = 0, weight = 0;
    double all() const { return forward + backward + weight; }
};

// What a device computes of the model.
struct WorkOfParts {
    Work embedding, head;
    Work blocks;  // all of them
};

// The same for slices of a micro-batch: of all slices in the mean, and of the first slice.
struct WorksOnDevice {
    WorkOfParts mean, first;
};

class SplitBounder {
public:
    SplitBounder(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                 const std::vector<DeviceConfig>& devices)
        : facts_(facts), shape_(facts.shape), index_(shape_), costs_(costs), parts_(parts), devices_(devices) {
        const Cluster& cluster = *parts.costs.cluster;
        for (int device = 0; device < shape_.devices; ++device) {
            const std::size_t kind = cluster.kind.empty() ? 0 : static_cast<std::size_t>(cluster.kind[device]);
            if (works_.size() <= kind)
                works_.resize(kind + 1);
            if (!works_[kind])
                works_[kind] = works_on(device);
            kind_of_.push_back(kind);
            room_.push_back(room_of(device));
        }
    }

    // Any weighted mean of the bounds of devices is a bound. Each block counts on the stage where a block counts least.
    // Equal weights suit devices that never wait for the first micro-batch. Weights that grow by m / (m - 1) along a
    // chain of devices, with m micro-batches, make a block count as much on every stage.
    Ns least_step() const {
        const auto m = static_cast<double>(served_by(shape_, index_, 0, index_.stages_of(0).front()));
        double least = 0;
        for (const double growth : {1.0, m > 1 ? m / (m - 1) : 2.0})
            for (const bool with_weights : {false, true})
                least = std::max(least, weighted(weights_of(growth), with_weights));
        // The exposed parts of pairs are rounded, and the times of tasks on devices whose speed is not 1. Slices take
        // parts of the times of stages, which are sums of rounded times.
        const double tasks = static_cast<double>(shape_.stages) * shape_.microbatches;
        const double of_slices = shape_.slices > 1 ? 4 * tasks * (parts_.blocks + 3) : 0;
        const double rounded =
            (facts_.pairs ? tasks : 0) + (costs_.cluster->kinds.empty() ? 0 : 4 * tasks) + of_slices + 1;
        return std::max<Ns>(0, static_cast<Ns>(least * (1 - 1e-9) - rounded));
    }

    bool may_fit() const {
        double room = 0;
        for (const double of_device : room_)
            room += std::max(0.0, of_device);
        const auto copies = static_cast<double>(index_.devices_of(0).size());
        return *std::ranges::min_element(room_) >= 0 && room >= copies * parts_.blocks;
    }

    // The number of blocks for each stage: the least loaded device with room gets the next block.
    std::vector<int> balanced() const {
        std::vector<int> blocks(static_cast<std::size_t>(shape_.stages), 0);
        std::vector<int> on_device(static_cast<std::size_t>(shape_.devices), 0);
        for (int rest = parts_.blocks; rest > 0; --rest) {
            int least = -1;
            for (int device = 0; device < shape_.devices; ++device)
                if (on_device[device] + 1 <= room_[device] &&
                    (least < 0 || load_of(device, on_device[device] + 1) < load_of(least, on_device[least] + 1)))
                    least = device;
            if (least < 0)
                return {};
            ++on_device[least];
            const auto stages = index_.stages_of(least);
            ++blocks[*std::ranges::min_element(stages, {}, [&](int stage) { return blocks[stage]; })];
        }
        return blocks;
    }

    // The time that the longest device computes per micro-batch with these numbers of blocks.
    double longest(const std::vector<int>& blocks) const {
        std::vector<int> on_device(static_cast<std::size_t>(shape_.devices), 0);
        for (int stage = 0; stage < shape_.stages; ++stage)
            on_device[static_cast<std::size_t>(holder_of(stage))] += blocks[static_cast<std::size_t>(stage)];
        double longest = 0;
        for (int device = 0; device < shape_.devices; ++device)
            longest = std::max(longest, load_of(device, on_device[static_cast<std::size_t>(device)]));
        return longest;
    }

    bool has_one_holder() const {
        for (int stage = 0; stage < shape_.stages; ++stage)
            if (index_.devices_of(stage).size() != 1)
                return false;
        return shape_.stages > 1 && parts_.blocks >= shape_.stages - 2;
    }

private:
    WorksOnDevice works_on(int device) const {
        WorksOnDevice works;
        for (int slice = shape_.slices - 1; slice >= 0; --slice) {
            works.first = work_on(device, slice);
            for (Work WorkOfParts::*const part : {&WorkOfParts::embedding, &WorkOfParts::head, &WorkOfParts::blocks})
                for (double Work::*const pass : {&Work::forward, &Work::backward, &Work::weight})
                    works.mean.*part.*pass += works.first.*part.*pass / shape_.slices;
        }
        return works;
    }

    WorkOfParts work_on(int device, int slice) const {
        const Work first = work_of(kFirstBlock, device, slice), others = work_of(kOtherBlocks, device, slice);
        return {work_of(kEmbedding, device, slice),
                work_of(kHead, device, slice),
                {first.forward + others.forward, first.backward + others.backward, first.weight + others.weight}};
    }

    Work work_of(Part part, int device, int slice) const {
        const StageTimes times = stage_times(facts_.form, part, device, parts_.costs, slice);
        const auto without_dispatch = [&](Ns time) {
            return static_cast<double>(std::max<Ns>(0, time - parts_.costs.dispatch));
        };
        return {without_dispatch(times.forward), without_dispatch(times.backward), without_dispatch(times.weight)};
    }

    const WorksOnDevice& works_of(int device) const { return *works_[kind_of_[static_cast<std::size_t>(device)]]; }
    const WorkOfParts& work_of(int device) const { return works_of(device).mean; }
    int holder_of(int stage) const { return index_.devices_of(stage).front(); }
    bool holds(int device, int stage) const { return std::ranges::count(index_.devices_of(stage), device) > 0; }
    double load_of(int device, int blocks) const {
        const WorkOfParts& work = work_of(device);
        return work.blocks.all() / parts_.blocks * blocks + (holds(device, 0) ? work.embedding.all() : 0) +
               (holds(device, shape_.stages - 1) ? work.head.all() : 0);
    }

    // How many blocks fit a device in addition to the embedding and the head, at the moment when it holds most
    // activations. Below 0 if not even embedding and head fit.
    double room_of(int device) const {
        const std::vector<StageBytes>& sizes = parts_.costs.times_on(device).sizes;
        const auto part = [&](Part of) -> const StageBytes& {
            return (sizes.empty() ? parts_.costs.bytes : sizes)[static_cast<std::size_t>(of)];
        };
        const auto persistent = [&](Part of) {
            return static_cast<double>(persistent_of(part(of), parts_.costs.kept));
        };
        const double least = parts_.first_saved > 0
                                 ? static_cast<double>(parts_.least_saved) / static_cast<double>(parts_.first_saved)
                                 : 1;
        const StageBytes& block = part(kFirstBlock);
        std::map<int, double> held_of;  // of a block, by stage
        for (const OrderFacts::Held& held : facts_.held[static_cast<std::size_t>(device)]) {
            const double length =
                shape_.slices == 1 ? 1 : parts_.costs.length_of(held.slice, kFirstBlock).bytes * (1 - 1e-9);
            held_of[held.stage] += length * static_cast<double>(saved_of(held, block));
        }
        double each = std::numeric_limits<double>::infinity();
        for (const auto& [stage, bytes] : held_of)
            each = std::min(each, parts_.least_weights * persistent(kFirstBlock) + least * bytes);
        const double fixed = (holds(device, 0) ? persistent(kEmbedding) : 0) +
                             (holds(device, shape_.stages - 1) ? persistent(kHead) : 0);
        const Bytes has = devices_[static_cast<std::size_t>(device)].memory;
        if (has == kUnlimited || each <= 0)
            return std::numeric_limits<double>::infinity();
        const double left = static_cast<double>(has) - fixed;
        return left < 0 ? -1 : std::floor(left / each);
    }

    // By device. The weights add up to 1. Devices follow one another by their first stage. A device that is twice as
    // fast has twice the weight: then a block counts as much on both.
    std::vector<double> weights_of(double growth) const {
        std::vector<double> weights;
        for (int device = 0; device < shape_.devices; ++device)
            weights.push_back(std::pow(growth, index_.stages_of(device).front()) *
                              (works_.size() == 1 ? 1 : 1 / std::max(1.0, work_of(device).blocks.all())));
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double& weight : weights)
            weight /= sum;
        return weights;
    }

    // The weighted mean of what least_step_time() says of each device: all its passes after the forwards of earlier
    // stages, and either the gradients of weights or, before its end, the backwards of earlier stages.
    double weighted(const std::vector<double>& weights, bool with_weights) const {
        const double exposed = least_exposed(costs_, facts_.pairs);
        double least = std::numeric_limits<double>::infinity(), ends = 0;
        std::vector<double> beginning(static_cast<std::size_t>(shape_.stages), 0);  // by first stage: of its device
        for (int device = 0; device < shape_.devices; ++device)
            beginning[static_cast<std::size_t>(index_.stages_of(device).front())] += weights[device];
        double after = 0;  // of the devices whose first stage is later
        for (int stage = shape_.stages - 1; stage >= 0; --stage) {
            const auto holders = index_.devices_of(stage);
            // What a part of the model counts on this stage.
            const auto counted = [&](Work WorkOfParts::*part) {
                double sum = 0, before = std::numeric_limits<double>::infinity();
                for (const int device : holders) {
                    const Work& work = work_of(device).*part;
                    sum += weights[device] * served_by(shape_, index_, device, stage) *
                           (exposed * work.forward + work.backward + (with_weights ? work.weight : 0));
                    const Work& first = works_of(device).first.*part;
                    before = std::min(before, first.forward + (with_weights ? 0 : first.backward));
                }
                return sum + after * before;
            };
            least = std::min(least, counted(&WorkOfParts::blocks));
            if (stage == 0)
                ends += counted(&WorkOfParts::embedding);
            if (stage + 1 == shape_.stages)
                ends += counted(&WorkOfParts::head);
            after += beginning[static_cast<std::size_t>(stage)];
        }
        return ends + least;
    }

    const OrderFacts& facts_;
    const Shape& shape_;
    const ShapeIndex index_;
    const Costs& costs_;
    const SplitParts& parts_;
    const std::vector<DeviceConfig>& devices_;
    std::vector<std::optional<WorksOnDevice>> works_;  // by kind of device
    std::vector<std::size_t> kind_of_;                 // by device
    std::vector<double> room_;                         // by device
};

}  // namespace

std::vector<std::vector<int>> moves_of(const std::vector<int>& blocks, const OrderFacts& facts, const Costs& costs,
                                       const SplitParts& parts, const std::vector<DeviceConfig>& devices,
                                       unsigned seed) {
    const SplitBounder bounder(facts, costs, parts, devices);
    if (!bounder.has_one_holder())
        return {};
    const double longest = bounder.longest(blocks) * (1 + 1e-9);
    std::vector<std::pair<double, std::vector<int>>> moves;
    for (std::size_t from = 0; from < blocks.size(); ++from)
        for (std::size_t to = 0; to < blocks.size(); ++to) {
            if (from == to || blocks[from] == 0)
                continue;
            std::vector<int> moved = blocks;
            --moved[from];
            ++moved[to];
            if (const double of_move = bounder.longest(moved); of_move <= longest)
                moves.emplace_back(of_move, std::move(moved));
        }
    std::mt19937 random(seed);
    for (std::size_t k = moves.size(); k > 1; --k)
        std::swap(moves[k - 1], moves[random() % k]);
    std::ranges::stable_sort(moves, {}, &std::pair<double, std::vector<int>>::first);
    std::vector<std::vector<int>> sorted;
    for (auto& [of_move, moved] : moves)
        sorted.push_back(std::move(moved));
    return sorted;
}

SplitBounds bounds_of_splits(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                             const std::vector<DeviceConfig>& devices, bool fits) {
    const SplitBounder bounder(facts, costs, parts, devices);
    if (!bounder.may_fit())
        return {};
    SplitBounds bounds{bounder.least_step(), true};
    if (!bounder.has_one_holder())
        return bounds;
    const std::vector<int> even = even_blocks(parts.blocks, facts.shape.stages);
    std::vector<int> balanced = bounder.balanced();
    if (balanced.empty() || balanced == even)
        return bounds;
    const double shorter = bounder.longest(even) - bounder.longest(balanced);
    if (fits && shorter <= 1e-6 * bounder.longest(even))
        return bounds;
    bounds.gain = static_cast<Ns>(shorter * facts.shape.microbatches);
    bounds.balanced = std::move(balanced);
    return bounds;
}

}  // namespace pw

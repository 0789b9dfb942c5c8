#include "search/clusters/split_bounds.h"

#include "job/transformer_job.h"
#include "schedules/plan/shape_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace pw {

namespace {

enum Part { kEmbedding, kFirstBlock, kOtherBlocks, kHead };

// The times of a micro-batch, without the time to dispatch.
struct Work {
    double forward = 0, backward = 0, weight = 0;
    double all() const { return forward + backward + weight; }
};

class SplitBounder {
public:
    SplitBounder(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                 const std::vector<DeviceConfig>& devices)
        : facts_(facts),
          shape_(facts.shape),
          index_(shape_),
          costs_(costs),
          parts_(parts),
          devices_(devices),
          embedding_(work_of(kEmbedding)),
          head_(work_of(kHead)) {
        const Work first = work_of(kFirstBlock), others = work_of(kOtherBlocks);
        blocks_ = {first.forward + others.forward, first.backward + others.backward, first.weight + others.weight};
        for (int device = 0; device < shape_.devices; ++device)
            room_.push_back(room_of(device));
    }

    // Any weighted mean of the bounds of devices is a bound. Each block counts on the stage where a block counts least.
    // Equal weights suit devices that never wait for the first micro-batch. Weights that grow by m / (m - 1) along a
    // chain of devices, with m micro-batches, make a block count as much on every stage.
    Ns least_step() const {
        const auto m = static_cast<double>(served_by(shape_, 0, index_.stages_of(0).front()));
        double least = 0;
        for (const double growth : {1.0, m > 1 ? m / (m - 1) : 2.0})
            for (const bool with_weights : {false, true})
                least = std::max(least, weighted(weights_of(growth), with_weights));
        const double rounded = static_cast<double>(shape_.stages) * shape_.microbatches;  // exposed parts of pairs
        return std::max<Ns>(0, static_cast<Ns>(least * (1 - 1e-9) - (facts_.pairs ? rounded : 1)));
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
        std::vector<int> blocks(static_cast<std::size_t>(shape_.stages), 1);
        blocks.front() = blocks.back() = 0;
        std::vector<int> on_device(static_cast<std::size_t>(shape_.devices), 0);
        for (int stage = 1; stage + 1 < shape_.stages; ++stage)
            ++on_device[static_cast<std::size_t>(holder_of(stage))];
        for (int rest = parts_.blocks - (shape_.stages - 2); rest > 0; --rest) {
            int least = -1;
            for (int device = 0; device < shape_.devices; ++device)
                if (on_device[device] + 1 <= room_[device] &&
                    (least < 0 || load_of(device, on_device[device]) < load_of(least, on_device[least])))
                    least = device;
            if (least < 0)
                return {};
            ++on_device[least];
            const auto stages = index_.stages_of(least);
            ++blocks[*std::ranges::min_element(stages, {}, [&](int stage) { return blocks[stage]; })];
        }
        return blocks;
    }

    // The time that a device computes per micro-batch with these numbers of blocks; of the longest device.
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
    Work work_of(Part part) const {
        const StageTimes times = stage_times(facts_.form, part, 0, parts_.costs);
        const auto without_dispatch = [&](Ns time) {
            return static_cast<double>(std::max<Ns>(0, time - parts_.costs.dispatch));
        };
        return {without_dispatch(times.forward), without_dispatch(times.backward), without_dispatch(times.weight)};
    }

    int holder_of(int stage) const { return index_.devices_of(stage).front(); }
    bool holds(int device, int stage) const { return std::ranges::count(index_.devices_of(stage), device) > 0; }
    double load_of(int device, int blocks) const {
        return blocks_.all() / parts_.blocks * blocks + (holds(device, 0) ? embedding_.all() : 0) +
               (holds(device, shape_.stages - 1) ? head_.all() : 0);
    }

    // How many blocks fit a device in addition to the embedding and the head, at the moment when it holds most
    // activations; below 0 if not even these fit.
    double room_of(int device) const {
        const auto part = [&](Part of) -> const StageBytes& {
            return parts_.costs.bytes[static_cast<std::size_t>(of)];
        };
        const auto persistent = [&](Part of) {
            return static_cast<double>(persistent_of(part(of), parts_.costs.optimizer));
        };
        const double least = parts_.first_saved > 0
                                 ? static_cast<double>(parts_.least_saved) / static_cast<double>(parts_.first_saved)
                                 : 1;
        const StageBytes& block = part(kFirstBlock);
        double each = std::numeric_limits<double>::infinity();
        for (const OrderFacts::Held& held : facts_.held[static_cast<std::size_t>(device)])
            each = std::min(
                each, persistent(kFirstBlock) + least * static_cast<double>(held.until_input * block.until_input +
                                                                            held.until_weight * block.until_weight));
        const double fixed = (holds(device, 0) ? persistent(kEmbedding) : 0) +
                             (holds(device, shape_.stages - 1) ? persistent(kHead) : 0);
        const Bytes has = devices_[static_cast<std::size_t>(device)].memory;
        if (has == kUnlimited || each <= 0)
            return std::numeric_limits<double>::infinity();
        const double left = static_cast<double>(has) - fixed;
        return left < 0 ? -1 : std::floor(left / each);
    }

    // By device; they add up to 1. Devices follow one another by their first stage.
    std::vector<double> weights_of(double growth) const {
        std::vector<double> weights;
        for (int device = 0; device < shape_.devices; ++device)
            weights.push_back(std::pow(growth, index_.stages_of(device).front()));
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double& weight : weights)
            weight /= sum;
        return weights;
    }

    // The weighted mean of what least_step_time() says of each device: all its passes after the forwards of earlier
    // stages, and either the gradients of weights or, before its end, the backwards of earlier stages.
    double weighted(const std::vector<double>& weights, bool with_weights) const {
        const double exposed = facts_.pairs ? costs_.pair_exposed : 1;
        std::array<double, 3> least{};
        least.fill(std::numeric_limits<double>::infinity());
        double ends = 0;
        for (int stage = 0; stage < shape_.stages; ++stage) {
            double after = 0, passes = 0;
            for (int device = 0; device < shape_.devices; ++device)
                after += index_.stages_of(device).front() > stage ? weights[device] : 0;
            for (const int device : index_.devices_of(stage))
                passes += weights[device] * served_by(shape_, device, stage);
            const std::array<double, 3> counts = {exposed * passes + after, passes + (with_weights ? 0 : after),
                                                  with_weights ? passes : 0};
            for (std::size_t k = 0; k < least.size(); ++k)
                least[k] = std::min(least[k], counts[k]);
            for (const auto& [at, work] : {std::pair(0, &embedding_), std::pair(shape_.stages - 1, &head_)})
                if (stage == at)
                    ends += work->forward * counts[0] + work->backward * counts[1] + work->weight * counts[2];
        }
        return ends + blocks_.forward * least[0] + blocks_.backward * least[1] + blocks_.weight * least[2];
    }

    const OrderFacts& facts_;
    const Shape& shape_;
    const ShapeIndex index_;
    const Costs& costs_;
    const SplitParts& parts_;
    const std::vector<DeviceConfig>& devices_;
    const Work embedding_, head_;
    Work blocks_;               // of all blocks
    std::vector<double> room_;  // by device
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
            const bool is_end = from == 0 || from + 1 == blocks.size();
            if (from == to || blocks[from] <= (is_end ? 0 : 1))
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

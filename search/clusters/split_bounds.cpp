#include "search/clusters/split_bounds.h"

#include "schedules/plan/shape_index.h"
#include "search/clusters/block_room.h"
#include "search/exposed_work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

namespace pw {

namespace {

// The times of a micro-batch or of a slice, without the time to dispatch.
struct Work {
    double forward = 0, backward = 0, weight = 0;
    double all() const { return forward + backward + weight; }
};

constexpr double Work::*kPassesOfWork[] = {&Work::forward, &Work::backward, &Work::weight};

// What a device computes of the model: the embedding, each run of blocks, the head.
using WorkOfParts = std::vector<Work>;

// The same for slices of a micro-batch: of all slices in the mean, and of the first slice.
struct WorksOnDevice {
    WorkOfParts mean, first;
};

double time_of_blocks(const WorkOfParts& work) {
    return std::accumulate(work.begin() + 1, work.end() - 1, 0.0,
                           [](double sum, const Work& run) { return sum + run.all(); });
}

// Counts the blocks from `begin` to `end` by run.
void count_by_run(const std::vector<SplitParts::Run>& runs, int begin, int end, std::vector<int>& counts) {
    int first = 0;
    for (std::size_t run = 0; run < runs.size(); ++run) {
        const int last = first + runs[run].blocks;
        counts[run] += std::max(0, std::min(end, last) - std::max(begin, first));
        first = last;
    }
}

class SplitBounder {
public:
    SplitBounder(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                 const std::vector<DeviceConfig>& devices)
        : facts_(facts),
          shape_(facts.shape),
          index_(shape_),
          costs_(costs),
          parts_(parts),
          room_(facts, index_, parts, devices) {
        const Cluster& cluster = *parts.costs.cluster;
        for (int device = 0; device < shape_.devices; ++device) {
            const std::size_t kind = cluster.kind.empty() ? 0 : static_cast<std::size_t>(cluster.kind[device]);
            if (works_.size() <= kind)
                works_.resize(kind + 1);
            if (!works_[kind])
                works_[kind] = works_on(device);
            kind_of_.push_back(kind);
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
        const double of_slices = shape_.slices > 1 ? 4 * tasks * (parts_.blocks() + 3) : 0;
        const double rounded =
            (facts_.pairs ? tasks : 0) + (costs_.cluster->kinds.empty() ? 0 : 4 * tasks) + of_slices + 1;
        return std::max<Ns>(0, static_cast<Ns>(least * kNoMore - rounded));
    }

    bool may_fit() const { return room_.may_fit(); }

    std::vector<int> balanced() const { return parts_.runs.size() == 1 ? balanced_alike() : balanced_in_order(); }

    // The time that the longest device computes per micro-batch with these numbers of blocks.
    double longest(const std::vector<int>& blocks) const {
        const std::vector<int> none(parts_.runs.size(), 0);
        std::vector<std::vector<int>> on_device(static_cast<std::size_t>(shape_.devices), none);
        int first = 0;
        for (int stage = 0; stage < shape_.stages; ++stage) {
            const int end = first + blocks[static_cast<std::size_t>(stage)];
            count_by_run(parts_.runs, first, end, on_device[static_cast<std::size_t>(holder_of(stage))]);
            first = end;
        }
        double longest = 0;
        for (int device = 0; device < shape_.devices; ++device)
            longest = std::max(longest, load_of(device, on_device[static_cast<std::size_t>(device)]));
        return longest;
    }

    bool has_one_holder() const {
        for (int stage = 0; stage < shape_.stages; ++stage)
            if (index_.devices_of(stage).size() != 1)
                return false;
        return shape_.stages > 1 && parts_.blocks() >= shape_.stages - 2;
    }

private:
    // The number of blocks for each stage: the least loaded device with room gets the next block.
    std::vector<int> balanced_alike() const {
        std::vector<int> blocks(static_cast<std::size_t>(shape_.stages), 0);
        std::vector<int> on_device(static_cast<std::size_t>(shape_.devices), 0);
        const auto load_with_next = [&](int device) {
            const int with_next = on_device[static_cast<std::size_t>(device)] + 1;
            return load_of(device, {&with_next, 1});
        };
        for (int rest = parts_.blocks(); rest > 0; --rest) {
            int least = -1;
            for (int device = 0; device < shape_.devices; ++device)
                if (on_device[device] + 1 <= room_.blocks_of(device) &&
                    (least < 0 || load_with_next(device) < load_with_next(least)))
                    least = device;
            if (least < 0)
                return {};
            ++on_device[least];
            const auto stages = index_.stages_of(least);
            ++blocks[*std::ranges::min_element(stages, {}, [&](int stage) { return blocks[stage]; })];
        }
        return blocks;
    }

    // The numbers of blocks that make the longest stage shortest, as far as memory allows: devices share what they have
    // equally among their stages.
    std::vector<int> balanced_in_order() const {
        std::vector<std::vector<double>> sizes;  // by stage and run, of a block
        double most = 0, least = 0;
        for (int stage = 0; stage < shape_.stages; ++stage) {
            std::vector<double>& of_stage = sizes.emplace_back();
            for (const SplitParts::Run& run : parts_.runs)
                of_stage.push_back(room_.bytes_on(holder_of(stage), stage, run));
            for (const Work& work : work_of(holder_of(stage)))
                most += work.all();
        }
        std::vector<int> balanced = filled(most, sizes);
        for (int halvings = 0; !balanced.empty() && halvings < 50; ++halvings) {
            const double middle = (least + most) / 2;
            std::vector<int> shorter = filled(middle, sizes);
            (shorter.empty() ? least : most) = middle;
            if (!shorter.empty())
                balanced = std::move(shorter);
        }
        return balanced;
    }

    // The last stage takes blocks from the end as long as they take no longer than `longest` and have room, and so on
    // to the first stage. Empty if blocks are left.
    std::vector<int> filled(double longest, const std::vector<std::vector<double>>& sizes) const {
        std::vector<int> blocks(static_cast<std::size_t>(shape_.stages), 0);
        std::size_t run = parts_.runs.size();
        int of_run = 0;  // blocks that are left of this run
        for (int stage = shape_.stages - 1; stage >= 0; --stage) {
            const int device = holder_of(stage);
            const WorkOfParts& work = work_of(device);
            double time = (stage == 0 ? work.front().all() : 0) + (stage + 1 == shape_.stages ? work.back().all() : 0);
            double left = room_.bytes_of(device) / static_cast<double>(index_.stages_of(device).size());
            for (;; ++blocks[static_cast<std::size_t>(stage)], --of_run) {
                if (of_run == 0 && run == 0)
                    break;
                if (of_run == 0)
                    of_run = parts_.runs[--run].blocks;
                time += work[run + 1].all() / parts_.runs[run].blocks;
                left -= sizes[static_cast<std::size_t>(stage)][run];
                if (time > longest || left < 0)
                    break;
            }
        }
        return run > 0 || of_run > 0 ? std::vector<int>{} : blocks;
    }

    WorksOnDevice works_on(int device) const {
        WorksOnDevice works;
        works.mean.resize(parts_.runs.size() + 2);
        for (int slice = shape_.slices - 1; slice >= 0; --slice) {
            works.first = work_on(device, slice);
            for (std::size_t part = 0; part < works.mean.size(); ++part)
                for (double Work::*const pass : kPassesOfWork)
                    works.mean[part].*pass += works.first[part].*pass / shape_.slices;
        }
        return works;
    }

    WorkOfParts work_on(int device, int slice) const {
        WorkOfParts works = {work_of_stage(0, device, slice)};
        for (const SplitParts::Run& run : parts_.runs) {
            works.push_back(work_of_stage(run.stage, device, slice));
            if (run.blocks == 1)
                continue;
            const Work rest = work_of_stage(run.stage + 1, device, slice);
            for (double Work::*const pass : kPassesOfWork)
                works.back().*pass += rest.*pass;
        }
        works.push_back(work_of_stage(static_cast<int>(parts_.costs.stage.size()) - 1, device, slice));
        return works;
    }

    Work work_of_stage(int stage, int device, int slice) const {
        const StageTimes times = stage_times(facts_.form, stage, device, parts_.costs, slice);
        const auto without_dispatch = [&](Ns time) {
            return static_cast<double>(std::max<Ns>(0, time - parts_.costs.dispatch));
        };
        return {without_dispatch(times.forward), without_dispatch(times.backward), without_dispatch(times.weight)};
    }

    const WorksOnDevice& works_of(int device) const { return *works_[kind_of_[static_cast<std::size_t>(device)]]; }
    const WorkOfParts& work_of(int device) const { return works_of(device).mean; }
    int holder_of(int stage) const { return index_.devices_of(stage).front(); }
    bool holds(int device, int stage) const { return std::ranges::count(index_.devices_of(stage), device) > 0; }

    // The time of a device with these numbers of blocks of each run.
    double load_of(int device, std::span<const int> blocks) const {
        const WorkOfParts& work = work_of(device);
        double load = 0;
        for (std::size_t run = 0; run < blocks.size(); ++run)
            load += work[run + 1].all() / parts_.runs[run].blocks * blocks[run];
        return load + (holds(device, 0) ? work.front().all() : 0) +
               (holds(device, shape_.stages - 1) ? work.back().all() : 0);
    }

    // By device. The weights add up to 1. Devices follow one another by their first stage. A device that is twice as
    // fast has twice the weight: then a block counts as much on both.
    std::vector<double> weights_of(double growth) const {
        std::vector<double> weights;
        for (int device = 0; device < shape_.devices; ++device)
            weights.push_back(std::pow(growth, index_.stages_of(device).front()) *
                              (works_.size() == 1 ? 1 : 1 / std::max(1.0, time_of_blocks(work_of(device)))));
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double& weight : weights)
            weight /= sum;
        return weights;
    }

    // The weighted mean of what least_step_time() says of each device: all its passes after the forwards of earlier
    // stages, and either the gradients of weights or, before its end, the backwards of earlier stages.
    double weighted(const std::vector<double>& weights, bool with_weights) const {
        const double exposed = least_exposed(costs_, facts_.pairs);
        std::vector<double> beginning(static_cast<std::size_t>(shape_.stages), 0);  // by first stage: of its device
        for (int device = 0; device < shape_.devices; ++device)
            beginning[static_cast<std::size_t>(index_.stages_of(device).front())] += weights[device];
        std::vector<double> after(beginning.size(), 0);  // of the devices whose first stage is later
        for (int stage = shape_.stages - 2; stage >= 0; --stage)
            after[static_cast<std::size_t>(stage)] =
                after[static_cast<std::size_t>(stage) + 1] + beginning[static_cast<std::size_t>(stage) + 1];
        // What a part of the model counts on a stage.
        const auto counted = [&](std::size_t part, int stage) {
            double sum = 0, before = std::numeric_limits<double>::infinity();
            for (const int device : index_.devices_of(stage)) {
                const Work& work = work_of(device)[part];
                sum += weights[device] * served_by(shape_, index_, device, stage) *
                       (exposed * work.forward + work.backward + (with_weights ? work.weight : 0));
                const Work& first = works_of(device).first[part];
                before = std::min(before, first.forward + (with_weights ? 0 : first.backward));
            }
            return sum + after[static_cast<std::size_t>(stage)] * before;
        };
        // By stage: of the runs so far, on this stage and earlier stages. Alike blocks count least on a single stage.
        std::vector<double> least(beginning.size(), 0);
        for (std::size_t run = 0; run < parts_.runs.size(); ++run)
            for (int stage = 0; stage < shape_.stages; ++stage) {
                double& own = least[static_cast<std::size_t>(stage)];
                own += counted(run + 1, stage);
                if (stage > 0)
                    own = std::min(own, least[static_cast<std::size_t>(stage) - 1]);
            }
        return counted(parts_.runs.size() + 1, shape_.stages - 1) + counted(0, 0) + least.back();
    }

    const OrderFacts& facts_;
    const Shape& shape_;
    const ShapeIndex index_;
    const Costs& costs_;
    const SplitParts& parts_;
    const BlockRoom room_;
    std::vector<std::optional<WorksOnDevice>> works_;  // by kind of device
    std::vector<std::size_t> kind_of_;                 // by device
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
                             const std::vector<DeviceConfig>& devices, const std::vector<int>& usual, bool fits) {
    const SplitBounder bounder(facts, costs, parts, devices);
    if (!bounder.may_fit())
        return {};
    SplitBounds bounds{bounder.least_step(), true};
    if (!bounder.has_one_holder())
        return bounds;
    std::vector<int> balanced = bounder.balanced();
    if (balanced.empty() || balanced == usual)
        return bounds;
    const double shorter = bounder.longest(usual) - bounder.longest(balanced);
    if (fits && shorter <= 1e-6 * bounder.longest(usual))
        return bounds;
    bounds.gain = static_cast<Ns>(shorter * facts.shape.microbatches);
    bounds.balanced = std::move(balanced);
    return bounds;
}

}  // namespace pw

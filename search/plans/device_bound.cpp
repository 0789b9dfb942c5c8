#include "search/plans/device_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace pw {

namespace {

constexpr std::size_t kMostTimes = 10'000'000;  // of pieces, 4 bytes each
constexpr int kRounds = 250, kRoundsInVain = 80;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kUpdates = -1;

// A window of a device's list goes from the first F of a stage to the last backward of a later stage, or to the
// updates.
struct Window {
    int device, from, to;                      // stages (`to` may be kUpdates)
    std::vector<PlanBound::PathCounts> paths;  // by stage: its tasks in the window
};

std::vector<Window> windows_of(const Plan& plan, const PlanBound& bound) {
    std::vector<Window> windows;
    for (int device = 0; device < plan.shape.devices; ++device) {
        const std::vector<Task>& order = plan.order[device];
        const std::vector<int> stages = plan.shape.stages_of(device);
        for (const int from : stages) {
            const auto begin = std::find_if(order.begin(), order.end(), [&](const Task& task) {
                return task.op == Op::Forward && task.stage == from;
            });
            const auto ends_at = [&](int to) {
                auto end = order.end();
                while (to != kUpdates && end != begin &&
                       !(makes_input_gradient(std::prev(end)->op) && std::prev(end)->stage == to))
                    --end;
                return end;
            };
            std::vector<int> ends = stages;
            ends.push_back(kUpdates);
            for (const int to : ends) {
                const auto end = ends_at(to);
                if (end == begin)
                    continue;  // no backward of the stage follows: a plan that does not train has none
                Window& window = windows.emplace_back(Window{device, from, to, {}});
                window.paths.resize(static_cast<std::size_t>(plan.shape.stages));
                std::for_each(begin, end, [&](const Task& task) { bound.count(task, window.paths[task.stage]); });
            }
        }
    }
    return windows;
}

// All splits at once: by stage and cut, the pieces that the stage may be, and the time that each adds to its device and
// to the stage.
class Splits {
public:
    Splits(const Plan& plan, const StageBounds& bounds, const StageSpace& space, Ns limit, Deadline& deadline)
        : cuts_(static_cast<std::size_t>(bounds.pieces().cuts())),
          stages_(plan.shape.stages),
          windows_(windows_of(plan, bounds.plan())) {
        for (int stage = 0; stage < stages_; ++stage) {
            own_windows_.emplace_back();
            for (std::size_t number = 0; number < windows_.size(); ++number)
                if (windows_[number].device == bounds.plan().device_of(stage))
                    own_windows_.back().push_back(number);
        }
        std::vector<char> is_cut(cuts_, false);  // before the stage
        is_cut.front() = true;
        for (int stage = 0; stage < stages_; ++stage) {
            std::vector<char> is_cut_after(cuts_, false);
            for (std::size_t cut = 0; cut < cuts_; ++cut) {
                deadline.check();
                first_.push_back(to_.size());
                if (!is_cut[cut] || too_many())
                    continue;
                for (const Piece& piece : bounds.pieces().from(static_cast<int>(cut)))
                    if ((piece.to == space.whole()) == (stage + 1 == stages_))
                        if (const Ns time = bounds.step_time(stage, piece); time < limit) {
                            add(bounds.plan(), stage, piece, time);
                            is_cut_after[static_cast<std::size_t>(piece.to)] = true;
                        }
            }
            is_cut.swap(is_cut_after);
        }
        first_.push_back(to_.size());
    }

    bool too_many() const { return times_.size() > kMostTimes; }
    std::size_t size() const { return times_.size(); }
    std::size_t count() const { return windows_.size() + static_cast<std::size_t>(stages_); }  // of times of a split
    bool is_of_device(std::size_t time) const { return time < windows_.size(); }

    // Returns the least weighted sum of the times of a split, and sets `times` to the times of this split.
    double least(const std::vector<double>& weights, std::vector<double>& times) const {
        std::vector<double> least(cuts_, kInfinite), rest(cuts_, kInfinite), own;
        std::vector<std::size_t> chosen(static_cast<std::size_t>(stages_) * cuts_, 0);
        rest.back() = 0;
        for (int stage = stages_ - 1; stage >= 0; --stage) {
            own.clear();
            for (const std::size_t window : own_windows_[stage])
                own.push_back(weights[window]);
            own.push_back(weights[windows_.size() + static_cast<std::size_t>(stage)]);
            for (std::size_t cut = 0; cut < cuts_; ++cut) {
                double best = kInfinite;
                const std::size_t row = static_cast<std::size_t>(stage) * cuts_ + cut;
                const float* time = times_.data() + times_at(row);
                for (std::size_t at = first_[row]; at < first_[row + 1]; ++at, time += own.size()) {
                    double all = rest[static_cast<std::size_t>(to_[at])];
                    for (std::size_t k = 0; k < own.size(); ++k)
                        all += own[k] * time[k];
                    if (all < best) {
                        best = all;
                        chosen[row] = at;
                    }
                }
                least[cut] = best;
            }
            least.swap(rest);
        }
        if (rest.front() < kInfinite)
            read(chosen, times);
        return rest.front();
    }

private:
    void add(const PlanBound& bound, int stage, const Piece& piece, Ns time_of_stage) {
        to_.push_back(piece.to);
        for (const std::size_t number : own_windows_[stage]) {
            const Window& window = windows_[number];
            Ns time = bound.time_of(window.paths[static_cast<std::size_t>(stage)], stage, piece);
            if (window.from == stage)
                time += bound.head(stage, piece);
            if (window.to == stage)
                time += bound.tail(stage, piece);
            if (window.to == kUpdates)
                time += bound.update_time(stage, piece);
            times_.push_back(static_cast<float>(time));
        }
        times_.push_back(static_cast<float>(time_of_stage));
    }

    // The index of the times of a row's first piece: a stage has as many times per piece as its device has windows.
    std::size_t times_at(std::size_t row) const {
        std::size_t at = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const std::size_t begin = first_[static_cast<std::size_t>(stage) * cuts_];
            const std::size_t end = first_[std::min(row, static_cast<std::size_t>(stage + 1) * cuts_)];
            if (end > begin)
                at += (end - begin) * (own_windows_[stage].size() + 1);
        }
        return at;
    }

    void read(const std::vector<std::size_t>& chosen, std::vector<double>& times) const {
        times.assign(count(), 0);
        std::size_t cut = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const std::size_t row = static_cast<std::size_t>(stage) * cuts_ + cut, at = chosen[row];
            const float* time = times_.data() + times_at(row) + (at - first_[row]) * (own_windows_[stage].size() + 1);
            for (const std::size_t window : own_windows_[stage])
                times[window] += *time++;
            times[windows_.size() + static_cast<std::size_t>(stage)] = *time;
            cut = static_cast<std::size_t>(to_[at]);
        }
    }

    std::size_t cuts_;
    int stages_;
    std::vector<Window> windows_;
    std::vector<std::vector<std::size_t>> own_windows_;  // by stage: the windows of its device
    std::vector<std::size_t> first_;                     // by stage and cut: its first piece
    std::vector<int> to_;                                // by piece
    std::vector<float> times_;                           // by piece: of each own window, and of the stage
};

}  // namespace

Ns bound_of_devices(const Plan& plan, const StageBounds& bounds, const StageSpace& space, Ns limit,
                    std::int64_t& looked, Deadline& deadline) {
    const Splits splits(plan, bounds, space, limit, deadline);
    looked += static_cast<std::int64_t>(splits.size() / 16);
    if (splits.too_many())
        return 0;
    std::vector<double> weights, times;
    for (std::size_t time = 0; time < splits.count(); ++time)
        weights.push_back(splits.is_of_device(time) ? 1 : 0.01);
    double best = 0;
    for (int round = 0, in_vain = 0; round < kRounds && in_vain < kRoundsInVain; ++round) {
        deadline.check();
        looked += static_cast<std::int64_t>(splits.size() / 64);  // each costs less than to simulate a task
        double sum = 0;
        for (const double weight : weights)
            sum += weight;
        for (double& weight : weights)
            weight /= sum;
        const double least = splits.least(weights, times);
        if (least > static_cast<double>(limit) * (1 + 2e-6))
            return limit;
        in_vain = least > best * 1.0002 ? 0 : in_vain + 1;
        best = std::max(best, least);
        const double rate = 0.5 / std::sqrt(1 + round);
        for (std::size_t time = 0; time < weights.size(); ++time)
            weights[time] *= std::exp(rate * (times[time] / std::max(1.0, least) - 1));
    }
    // The parts are rounded. Splits with a piece that was left out take at least `limit`.
    return std::clamp<Ns>(static_cast<Ns>(best * (1 - 1e-6)), 0, limit);
}

}  // namespace pw

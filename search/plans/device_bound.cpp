#include "search/plans/device_bound.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::size_t kMostTimes = 10'000'000;  // of pieces, 4 bytes each
constexpr int kRounds = 300, kRoundsInVain = 100;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kUpdates = -1;

// Tasks that a device runs after a path of layers to the first of them, and before a path back after the last of them,
// or with its updates.
struct Window {
    int device;
    int from, to;                              // stages of the first and the last task (`to` may be kUpdates)
    Op first;                                  // an F or an I of stage `from`
    std::vector<PlanBound::PathCounts> paths;  // by stage: its tasks in the window
    std::vector<char> updates;                 // by stage: whether its update is in the window
};

Window window_of(int device, int from, int to, Op first, const Plan& plan) {
    const auto stages = static_cast<std::size_t>(plan.shape.stages);
    return {device, from, to, first, std::vector<PlanBound::PathCounts>(stages), std::vector<char>(stages)};
}

// A window of a device's list goes from the first F of a stage to the last backward of a later stage, or to the
// updates.
void add_windows_of_list(int device, const Plan& plan, const PlanBound& bound, std::vector<Window>& windows) {
    const std::vector<Task>& order = plan.order[device];
    const std::vector<int> stages = plan.shape.stages_of(device);
    for (const int from : stages) {
        const auto begin = std::find_if(order.begin(), order.end(),
                                        [&](const Task& task) { return task.op == Op::Forward && task.stage == from; });
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
            Window& window = windows.emplace_back(window_of(device, from, to, Op::Forward, plan));
            std::for_each(begin, end, [&](const Task& task) { bound.count(task, window.paths[task.stage]); });
        }
    }
}

// Whatever the order of a device's stages a < b < ..., paths of layers to the first tasks of their kinds get longer in
// the order F a, F b, ..., I b, W b, I a, W a, and paths back from the last tasks get shorter in the order F a, F b,
// ..., I b, I a, W. A window has the kinds whose path to is no shorter than the path to its first kind, and whose path
// back is no shorter than the path back from its last kind.
void add_windows_of_any_order(int device, const Plan& plan, const PlanBound& bound, std::vector<Window>& windows) {
    const std::vector<int> stages = plan.shape.stages_of(device);
    for (const Op first : {Op::Forward, Op::BackwardInput})
        for (const int from : stages)
            for (int last = 0; last <= std::ssize(stages); ++last) {
                const int to = last == std::ssize(stages) ? kUpdates : stages[static_cast<std::size_t>(last)];
                const bool from_forward = first == Op::Forward;
                if (!from_forward && to > from)
                    continue;
                const auto has_forward = [&](int stage) { return from_forward && stage >= from; };
                const auto has_input = [&](int stage) { return (from_forward || stage <= from) && stage >= to; };
                const auto has_weight = [&](int stage) { return to == kUpdates && (from_forward || stage <= from); };
                Window& window = windows.emplace_back(window_of(device, from, to, first, plan));
                for (const Task& task : plan.order[device])
                    if ((task.op == Op::Forward && has_forward(task.stage)) ||
                        (task.op == Op::Recompute && has_forward(task.stage) && has_input(task.stage)) ||
                        (makes_input_gradient(task.op) && has_input(task.stage)) ||
                        (task.op == Op::BackwardWeight && has_weight(task.stage)))
                        bound.count(task, window.paths[task.stage]);
                for (const int stage : stages)
                    window.updates[static_cast<std::size_t>(stage)] = has_weight(stage);
            }
}

bool has_stage(const Plan& plan, int device, int stage) {
    const std::vector<int> stages = plan.shape.stages_of(device);
    return std::ranges::find(stages, stage) != stages.end();
}

// In any order, devices with the same stages and as many tasks have the same windows.
bool is_like_an_earlier_device(int device, const Plan& plan) {
    for (int earlier = 0; earlier < device; ++earlier)
        if (plan.order[earlier].size() == plan.order[device].size() &&
            plan.shape.stages_of(earlier) == plan.shape.stages_of(device))
            return true;
    return false;
}

std::vector<Window> windows_of(const Plan& plan, const PlanBound& bound, bool listed) {
    std::vector<Window> windows;
    for (int device = 0; device < plan.shape.devices; ++device)
        if (listed)
            add_windows_of_list(device, plan, bound, windows);
        else if (bound.has_speed_of_stages(device, plan.shape) && !is_like_an_earlier_device(device, plan))
            add_windows_of_any_order(device, plan, bound, windows);
    return windows;
}

// All splits at once: by stage and cut, the pieces that the stage may be, and the parts of a split's times that each
// adds.
class Splits {
public:
    Splits(const Plan& plan, const StageBounds& bounds, const StageSpace& space, Ns limit, Deadline& deadline)
        : cuts_(static_cast<std::size_t>(bounds.pieces().cuts())),
          stages_(plan.shape.stages),
          listed_(bounds.shares_devices() && !bounds.plan().any_order()),
          windows_(windows_of(plan, bounds.plan(), listed_)) {
        for (int cut = 0; cut < space.whole(); ++cut)
            last_waits_for_all_ = last_waits_for_all_ && bounds.pieces().between(cut, space.whole()).waits_for_all;
        std::vector<char> is_cut(cuts_, false);  // before the stage
        is_cut.front() = true;
        for (int stage = 0; stage < stages_; ++stage) {
            add_parts(stage, plan, bounds.plan());
            std::vector<char> is_cut_after(cuts_, false);
            for (std::size_t cut = 0; cut < cuts_; ++cut) {
                deadline.check();
                first_.push_back(to_.size());
                if (!is_cut[cut] || too_many())
                    continue;
                for (const Piece& piece : bounds.pieces().from(static_cast<int>(cut)))
                    if ((piece.to == space.whole()) == (stage + 1 == stages_))
                        if (const Ns time = bounds.step_time(stage, piece); time < limit) {
                            add(bounds, stage, piece, time);
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
    // Whether the time counts all of a device's tasks.
    bool is_of_device(std::size_t time) const {
        return time < windows_.size() && windows_[time].to == kUpdates && windows_[time].first == Op::Forward;
    }

    // Returns the least weighted sum of the times of a split, and sets `times` to the times of this split.
    double least(const std::vector<double>& weights, std::vector<double>& times) const {
        std::vector<double> least(cuts_, kInfinite), rest(cuts_, kInfinite), own;
        std::vector<std::size_t> chosen(static_cast<std::size_t>(stages_) * cuts_, 0);
        rest.back() = 0;
        for (int stage = stages_ - 1; stage >= 0; --stage) {
            own.clear();
            for (const Part& part : parts_[stage])
                own.push_back(std::accumulate(part.begin(), part.end(), 0.0,
                                              [&](double sum, std::size_t time) { return sum + weights[time]; }));
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
    using Part = std::vector<std::size_t>;  // the times of a split that count this part of a piece's time

    // A stage has a part for each window of its device, and a part for itself. In any order it also has its F and its
    // I, which paths of stages to and from windows of all devices count, and the first stage what follows its I.
    void add_parts(int stage, const Plan& plan, const PlanBound& bound) {
        std::vector<std::size_t>& own = own_windows_.emplace_back();
        std::vector<Part>& parts = parts_.emplace_back();
        Part forward, backward_to, backward_from, end;
        for (std::size_t number = 0; number < windows_.size(); ++number) {
            const Window& window = windows_[number];
            if (listed_ ? window.device == bound.device_of(stage) : has_stage(plan, window.device, stage)) {
                own.push_back(number);
                parts.push_back({number});
            }
            const bool from_input = window.first == Op::BackwardInput;
            if (from_input || window.from > stage)
                forward.push_back(number);
            if (from_input && window.from < stage)
                backward_to.push_back(number);
            if (window.to > stage)
                backward_from.push_back(number);
            if (window.to != kUpdates && stage == 0)
                end.push_back(number);
        }
        parts.push_back({windows_.size() + static_cast<std::size_t>(stage)});
        if (!listed_)
            parts.insert(parts.end(), {forward, backward_to, backward_from, end});
    }

    void add(const StageBounds& bounds, int stage, const Piece& piece, Ns time_of_stage) {
        const PlanBound& bound = bounds.plan();
        const auto add_time = [&](Ns time) { times_.push_back(static_cast<float>(time)); };
        to_.push_back(piece.to);
        for (const std::size_t number : own_windows_[stage])
            add_time(listed_ ? time_in_list(windows_[number], bound, stage, piece)
                             : time_in_any_order(windows_[number], bounds, stage, piece));
        add_time(time_of_stage);
        if (listed_)
            return;
        const Around around = around_of(bounds.pieces(), piece);
        add_time(time_on_path(piece, piece.forward, piece.head, around.forward_before, bound));
        add_time(piece.waits_for_all ? bound.path(piece.backward) : 0);
        add_time(time_on_path(piece, piece.backward, piece.tail, around.backward_before, bound));
        add_time(stage == 0 ? bound.path(piece.rest) + bound.update_time(stage, piece) : 0);
    }

    // Times of all layers before a piece, after the piece, and of the model.
    struct Around {
        Ns forward_before = 0, backward_before = 0, backward_after = 0, forward = 0, backward = 0;
    };
    static Around around_of(const Pieces& pieces, const Piece& piece) {
        const Piece before = piece.from == 0 ? Piece{} : pieces.between(0, piece.from), &model = pieces.model();
        return {before.forward, before.backward, model.backward - before.backward - piece.backward, model.forward,
                model.backward};
    }

    // Returns what a stage adds to a path of stages that consists of all stages to it, and takes no longer than
    // `before` without it. A stage that waits for all earlier stages adds its time. The path to or from another stage
    // may be a path of layers, which takes `path` without the stage.
    Ns time_on_path(const Piece& piece, Ns own, Ns path, Ns before, const PlanBound& bound) const {
        if (piece.waits_for_all)
            return bound.path(own);
        return last_waits_for_all_ ? std::max<Ns>(0, bound.path(path + own) - bound.longest(before)) : 0;
    }

    static Ns time_in_list(const Window& window, const PlanBound& bound, int stage, const Piece& piece) {
        Ns time = bound.time_of(window.paths[static_cast<std::size_t>(stage)], stage, piece);
        if (window.from == stage)
            time += bound.head(stage, piece);
        if (window.to == stage)
            time += bound.tail(stage, piece);
        if (window.to == kUpdates)
            time += bound.update_time(stage, piece);
        return time;
    }

    // Paths of stages hold for a stage that waits for all earlier stages. For the tasks of another stage paths of
    // layers hold. So the window begins earlier and ends later, by what paths of stages may be longer.
    static Ns time_in_any_order(const Window& window, const StageBounds& bounds, int stage, const Piece& piece) {
        const PlanBound& bound = bounds.plan();
        const PlanBound::PathCounts& tasks = window.paths[static_cast<std::size_t>(stage)];
        if (tasks.forwards + tasks.backwards + tasks.wholes == 0)
            return 0;
        Ns time = bound.time_of(tasks, stage, piece);
        if (window.updates[static_cast<std::size_t>(stage)])
            time += bound.update_time(stage, piece);
        if (piece.waits_for_all)
            return time;
        const Around around = around_of(bounds.pieces(), piece);
        const auto longer = [&](Ns stages, Ns layers) {
            return std::max<Ns>(0, bound.longest(stages) - bound.path(layers));
        };
        if (window.first == Op::BackwardInput)
            time -= longer(around.forward + around.backward_after, piece.before_backward());
        else if (window.from <= stage)
            time -= longer(around.forward_before, piece.head);
        else
            time -= longer(around.forward, piece.before_backward());
        if (window.to == kUpdates)
            return time;
        return time - (window.to <= stage ? longer(around.backward_before, piece.tail)
                                          : longer(around.backward, piece.after_forward()));
    }

    // The index of the times of a row's first piece: a stage has as many times per piece as parts.
    std::size_t times_at(std::size_t row) const {
        std::size_t at = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const std::size_t begin = first_[static_cast<std::size_t>(stage) * cuts_];
            const std::size_t end = first_[std::min(row, static_cast<std::size_t>(stage + 1) * cuts_)];
            if (end > begin)
                at += (end - begin) * parts_[stage].size();
        }
        return at;
    }

    void read(const std::vector<std::size_t>& chosen, std::vector<double>& times) const {
        times.assign(count(), 0);
        std::size_t cut = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const std::size_t row = static_cast<std::size_t>(stage) * cuts_ + cut, at = chosen[row];
            const float* value = times_.data() + times_at(row) + (at - first_[row]) * parts_[stage].size();
            for (const Part& part : parts_[stage]) {
                for (const std::size_t time : part)
                    times[time] += *value;
                ++value;
            }
            cut = static_cast<std::size_t>(to_[at]);
        }
    }

    std::size_t cuts_;
    int stages_;
    bool listed_;                     // windows are between tasks of lists
    bool last_waits_for_all_ = true;  // the last stage waits for all stages in every split
    std::vector<Window> windows_;
    std::vector<std::vector<std::size_t>> own_windows_;  // by stage: the windows of its device
    std::vector<std::vector<Part>> parts_;               // by stage
    std::vector<std::size_t> first_;                     // by stage and cut: its first piece
    std::vector<int> to_;                                // by piece
    std::vector<float> times_;                           // by piece and part of its stage
};

void normalize(std::vector<double>& weights) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights)
        weight /= sum;
}

// Moves a point to the nearest weights that are not negative and add up to 1.
void project(std::vector<double>& weights) {
    std::vector<double> sorted = weights;
    std::ranges::sort(sorted, std::greater<>{});
    double sum = 0, less = 0;
    for (std::size_t count = 0; count < sorted.size(); ++count) {
        sum += sorted[count];
        if (const double cut = (sum - 1) / static_cast<double>(count + 1); sorted[count] > cut)
            less = cut;
    }
    for (double& weight : weights)
        weight = std::max(0.0, weight - less);
}

// Finds the weights for which the least mean is greatest: a subgradient is the times of the split with the least mean.
// Steps go in the mean direction of the last subgradients, as far as a mean of `aim` would need by the subgradient
// (Polyak). After many steps in vain they go less far, from the best weights.
class Ascent {
public:
    explicit Ascent(std::vector<double> weights) : weights_(weights), best_weights_(std::move(weights)) {}

    const std::vector<double>& weights() const { return weights_; }

    void step(double mean, const std::vector<double>& times, double limit) {
        constexpr int kInVain = 20;
        constexpr double kKept = 0.7, kShorter = 0.6, kAimed = 1.005;
        if (mean > best_) {
            in_vain_ = mean > best_ * 1.0001 ? 0 : in_vain_;
            best_ = mean;
            best_weights_ = weights_;
        }
        if (++in_vain_ > kInVain) {
            in_vain_ = 0;
            part_ *= kShorter;
            weights_ = best_weights_;
            direction_.clear();
        }
        const double average = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
        direction_.resize(times.size(), 0);
        double square = 0;
        for (std::size_t time = 0; time < times.size(); ++time) {
            direction_[time] = kKept * direction_[time] + (1 - kKept) * (times[time] - average);
            square += direction_[time] * direction_[time];
        }
        if (square == 0)
            return;
        const double far = part_ * (std::max(std::min(limit, 2 * best_), kAimed * best_) - mean) / square;
        for (std::size_t time = 0; time < times.size(); ++time)
            weights_[time] += far * direction_[time];
        project(weights_);
    }

private:
    std::vector<double> weights_, best_weights_, direction_;
    double best_ = 0, part_ = 1;
    int in_vain_ = 0;
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
    normalize(weights);
    Ascent ascent(weights);
    double best = 0;
    for (int round = 0, in_vain = 0; round < kRounds && in_vain < kRoundsInVain; ++round) {
        deadline.check();
        looked += static_cast<std::int64_t>(splits.size() / 64);  // each costs less than to simulate a task
        const double least = splits.least(ascent.weights(), times);
        if (least > static_cast<double>(limit) * (1 + 2e-6))
            return limit;
        in_vain = least > best * 1.0002 ? 0 : in_vain + 1;
        best = std::max(best, least);
        ascent.step(least, times, static_cast<double>(limit));
    }
    // The parts are rounded. Splits with a piece that was left out take at least `limit`.
    return std::clamp<Ns>(static_cast<Ns>(best * (1 - 1e-6)), 0, limit);
}

}  // namespace pw

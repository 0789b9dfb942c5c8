#include "workloads/stages/device_balance.h"

#include "workloads/stages/chain_partition.h"
#include "workloads/stages/rounds.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

namespace pw {
namespace {

constexpr int kMostNodes = 100'000;   // cuts that the search through all of them tries
constexpr int kMostOfEveryCut = 256;  // stages: more have too many ways anyway
constexpr double kClose = 0.02;
constexpr int kMostShifts = 10'000;  // chains of them, where rounded times would go round in a circle

// Every stage takes the layers whose work is nearest to an equal part of the rest of its device's share. If two
// candidates are equally near, the stage takes the candidate with more layers.
std::vector<int> proportional_cuts(const BalanceProblem& problem) {
    const double speeds = std::accumulate(problem.holders.speed.begin(), problem.holders.speed.end(), 0.0);
    std::vector<double> lacks;
    std::vector<std::size_t> to_come;
    for (std::size_t device = 0; device < problem.holders.speed.size(); ++device) {
        lacks.push_back(problem.sums.back() * problem.holders.speed[device] / speeds);
        to_come.push_back(problem.stages_of[device].size());
    }
    std::vector<int> cuts = {0};
    for (int stage = 0; stage + 1 < problem.stages; ++stage) {
        const auto device = static_cast<std::size_t>(problem.holders.device_of[stage]);
        const double part = lacks[device] / static_cast<double>(to_come[device]--);
        const int from = cuts.back();
        int to = from + 1;
        while (to < problem.latest_end(stage) &&
               std::abs(problem.work(from, to + 1) - part) <= std::abs(problem.work(from, to) - part))
            ++to;
        lacks[device] -= problem.work(from, to);
        cuts.push_back(to);
    }
    cuts.push_back(problem.layers);
    return cuts;
}

// A chain of shifts moves layers from a stage over one of its cuts to its neighbour, from a stage of that device to the
// next, and so on, until a device can keep them. A chain uses a cut and a device once.
class Shifts {
public:
    Shifts(const BalanceProblem& problem, const std::vector<int>& cuts)
        : problem_(problem), cuts_(cuts), work_(work_of(problem, cuts)), length_(length_of(problem, work_)) {}

    // Returns the cuts with fewer devices at the longest device time, or nothing. `limits` is by stage, in time.
    std::vector<int> relieve_device(const std::vector<double>& limits) {
        int most = 0;
        while (problem_.time_on(most, work_.device[most]) != length_.first)
            ++most;
        stage_limits_ = limits;
        device_limit_ = std::nextafter(length_.first, 0);
        return shift_from(problem_.stages_of[most]);
    }

    // Returns the cuts with fewer stages at the longest stage time, and no device above the longest device time, or
    // nothing.
    std::vector<int> relieve_stage() {
        int most = 0;
        while (problem_.time_on(problem_.holders.device_of[most], work_.stage[most]) != length_.second)
            ++most;
        stage_limits_.assign(static_cast<std::size_t>(problem_.stages), std::nextafter(length_.second, 0));
        device_limit_ = length_.first;
        return shift_from({most});
    }

private:
    // Layers go over `cut` to the later or to the earlier stage.
    struct Shift {
        int cut;
        bool later;
        int layers;
        double work;
        int before;  // the shift that brings the layers for which this shift makes room, -1: none
        int from() const { return later ? cut - 1 : cut; }
        int to() const { return later ? cut : cut - 1; }
    };

    bool stage_may_have(int stage, double work) const {
        return problem_.time_on(problem_.holders.device_of[stage], work) <= stage_limits_[stage];
    }
    bool may_have(int stage, double of_stage, double of_device) const {
        return stage_may_have(stage, of_stage) &&
               problem_.time_on(problem_.holders.device_of[stage], of_device) <= device_limit_;
    }

    // Adds the shift of the fewest layers over a cut of `stage` that brings its device below the limit.
    void try_shift(int stage, bool later, int before) {
        const int cut = later ? stage + 1 : stage;
        if (cut < 1 || cut >= problem_.stages || tried_[static_cast<std::size_t>(2 * cut + (later ? 1 : 0))])
            return;
        const Shift* brings = before < 0 ? nullptr : &shifts_[static_cast<std::size_t>(before)];
        const bool replaces = brings != nullptr && brings->to() == stage;
        const double device = work_.device[static_cast<std::size_t>(problem_.holders.device_of[stage])] +
                              (brings == nullptr ? 0 : brings->work);
        const double own = work_.stage[static_cast<std::size_t>(stage)] + (replaces ? brings->work : 0);
        const int most = cuts_[stage + 1] - cuts_[stage] - (replaces ? 0 : 1);
        for (int layers = 1; layers <= most; ++layers) {
            const double work =
                later ? problem_.work(cuts_[cut] - layers, cuts_[cut]) : problem_.work(cuts_[cut], cuts_[cut] + layers);
            if (!may_have(stage, own - work, device - work))
                continue;
            tried_[static_cast<std::size_t>(2 * cut + (later ? 1 : 0))] = true;
            shifts_.push_back({cut, later, layers, work, before});
            return;
        }
    }

    // Whether a chain that ends with `last` contains the device or the cut.
    bool passes(int last, int device, int cut) const {
        for (int at = last; at >= 0; at = shifts_[static_cast<std::size_t>(at)].before) {
            const Shift& shift = shifts_[static_cast<std::size_t>(at)];
            if (shift.cut == cut || problem_.holders.device_of[shift.from()] == device)
                return true;
        }
        return false;
    }

    std::vector<int> after(int last) const {
        std::vector<int> cuts = cuts_;
        for (int at = last; at >= 0; at = shifts_[static_cast<std::size_t>(at)].before) {
            const Shift& shift = shifts_[static_cast<std::size_t>(at)];
            cuts[static_cast<std::size_t>(shift.cut)] += shift.later ? -shift.layers : shift.layers;
        }
        return cuts;
    }

    // The shortest chain, by breadth first.
    std::vector<int> shift_from(const std::vector<int>& stages) {
        tried_.assign(2 * static_cast<std::size_t>(problem_.stages) + 2, false);
        for (const int stage : stages)
            for (const bool later : {true, false})
                try_shift(stage, later, -1);
        for (int at = 0; at < static_cast<int>(shifts_.size()); ++at) {
            const Shift shift = shifts_[static_cast<std::size_t>(at)];
            const int to = shift.to(), device = problem_.holders.device_of[to];
            if (passes(at, device, -1))
                continue;
            if (may_have(to, work_.stage[to] + shift.work, work_.device[device] + shift.work))
                return after(at);
            const bool stays = stage_may_have(to, work_.stage[to] + shift.work);
            for (const int stage : problem_.stages_of[static_cast<std::size_t>(device)])
                for (const bool later : {false, true})
                    if ((stays || stage == to) && !passes(at, -1, later ? stage + 1 : stage))
                        try_shift(stage, later, at);
        }
        return {};
    }

    const BalanceProblem& problem_;
    const std::vector<int>& cuts_;
    Work work_;
    Length length_;
    std::vector<double> stage_limits_;
    double device_limit_ = 0;
    std::vector<char> tried_;  // by cut, and whether to the later stage
    std::vector<Shift> shifts_;
};

std::vector<int> with_less_on_devices(const BalanceProblem& problem, std::vector<int> cuts,
                                      const std::vector<double>& limits) {
    std::vector<int> better = cuts;
    for (int chain = 0; chain < kMostShifts && !better.empty(); ++chain) {
        cuts = std::move(better);
        better = Shifts(problem, cuts).relieve_device(limits);
    }
    return cuts;
}

// First the devices, then the stages: a shift for a stage leaves the longest time of a device.
std::vector<int> shifted(const BalanceProblem& problem, std::vector<int> cuts) {
    const std::vector<double> any(static_cast<std::size_t>(problem.stages), std::numeric_limits<double>::infinity());
    cuts = with_less_on_devices(problem, std::move(cuts), any);
    std::vector<int> better = cuts;
    for (int chain = 0; chain < kMostShifts && !better.empty(); ++chain) {
        cuts = std::move(better);
        better = Shifts(problem, cuts).relieve_stage();
    }
    return cuts;
}

// Tries all cuts, long early stages first, as far as they may be shorter than the best cuts by more than kClose: a
// smaller gain is not worth a longer stage.
class EveryCut {
public:
    EveryCut(const BalanceProblem& problem, std::vector<int> best)
        : problem_(problem), best_(std::move(best)), device_(problem.holders.speed.size(), 0) {
        aim_below(length_of(problem, work_of(problem, best_)).first);
    }

    std::vector<int> run() {
        if (problem_.stages <= kMostOfEveryCut)
            extend(0);
        return best_;
    }

private:
    void aim_below(double time) { limit_ = time * (1 - kClose); }

    // The time that devices with further stages may still take.
    double room(int stage) const {
        double room = 0;
        for (std::size_t device = 0; device < device_.size(); ++device)
            if (problem_.stages_of[device].back() >= stage)
                room += limit_ * problem_.holders.speed[device] - device_[device];
        return room;
    }

    void extend(int stage) {
        if (stage == problem_.stages) {
            best_ = cuts_;
            best_.push_back(problem_.layers);
            aim_below(length_of(problem_, work_of(problem_, best_)).first);
            return;
        }
        const int from = end_, device = problem_.holders.device_of[stage];
        const auto fits = [&](int to) {
            return problem_.time_on(device, device_[device] + problem_.work(from, to)) <= limit_;
        };
        cuts_.push_back(from);
        const int least = stage + 1 == problem_.stages ? problem_.layers : from + 1;
        int longest = least - 1;  // the last end that fits
        for (int beyond = std::max(longest, problem_.latest_end(stage)) + 1; beyond - longest > 1;) {
            const int middle = longest + (beyond - longest) / 2;
            (fits(middle) ? longest : beyond) = middle;
        }
        for (int to = longest; to >= least && nodes_ < kMostNodes; --to) {
            const double work = problem_.work(from, to);
            ++nodes_;
            device_[device] += work;
            if (problem_.time_on(device, device_[device]) <= limit_ &&
                problem_.work(to, problem_.layers) <= room(stage + 1)) {
                end_ = to;
                extend(stage + 1);
            }
            device_[device] -= work;
        }
        cuts_.pop_back();
    }

    const BalanceProblem& problem_;
    std::vector<int> best_;
    std::vector<double> device_;  // work so far
    std::vector<int> cuts_;
    double limit_ = 0;
    int end_ = 0, nodes_ = 0;
};

bool is_looped(const StageHolders& holders) {
    for (std::size_t stage = 0; stage < holders.device_of.size(); ++stage)
        if (holders.device_of[stage] != static_cast<int>(stage % holders.speed.size()))
            return false;
    return true;
}

// Returns the longest stage of each stage's round.
std::vector<double> lengths_of_rounds(const BalanceProblem& problem, const std::vector<int>& cuts) {
    const std::vector<double> work = work_of(problem, cuts).stage;
    const std::size_t devices = problem.holders.speed.size();
    std::vector<double> longest(work.size(), 0);
    for (std::size_t stage = 0; stage < work.size(); ++stage)
        for (std::size_t other = stage / devices * devices;
             other < std::min(work.size(), (stage / devices + 1) * devices); ++other)
            longest[stage] = std::max(longest[stage], problem.time_on(problem.holders.device_of[other], work[other]));
    return longest;
}

std::vector<int> balanced_rounds(const BalanceProblem& problem) {
    std::vector<int> cuts = cuts_of_rounds(problem);
    const std::vector<double> limits = lengths_of_rounds(problem, cuts);
    return with_less_on_devices(problem, std::move(cuts), limits);
}

std::vector<int> balanced_devices(const BalanceProblem& problem, const std::vector<Ns>& time) {
    std::vector<int> by_stage = partition_chain({.time = time}, problem.stages).starts;
    by_stage.push_back(problem.layers);
    std::vector<int> best;
    for (std::vector<int> start : {proportional_cuts(problem), std::move(by_stage)}) {
        std::vector<int> cuts = shifted(problem, std::move(start));
        if (best.empty() || length_of(problem, work_of(problem, cuts)) < length_of(problem, work_of(problem, best)))
            best = std::move(cuts);
    }
    return shifted(problem, EveryCut(problem, std::move(best)).run());
}

}  // namespace

namespace {

// The busiest device, which no step is faster than, and the pace of all rounds.
double pace_of(const BalanceProblem& problem, const std::vector<int>& cuts) {
    const std::vector<double> longest = lengths_of_rounds(problem, cuts);
    double pace = length_of(problem, work_of(problem, cuts)).first;
    for (std::size_t stage = 0; stage < longest.size(); stage += problem.holders.speed.size())
        pace += longest[stage];
    return pace;
}

}  // namespace

std::vector<int> balance_devices(const std::vector<Ns>& time, const StageHolders& holders) {
    assert(!holders.device_of.empty() && holders.device_of.size() <= time.size());
    const BalanceProblem problem(time, holders);
    std::vector<int> cuts = balanced_devices(problem, time);
    if (is_looped(holders))
        if (std::vector<int> rounds = balanced_rounds(problem); pace_of(problem, rounds) <= pace_of(problem, cuts))
            cuts = std::move(rounds);
    cuts.pop_back();
    return cuts;
}

}  // namespace pw

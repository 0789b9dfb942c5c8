// How a trial moves the cuts of a split: by simulated step times, or until the devices have even work.
#include "search/plans/trial.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace pw {

// Moves a cut by `steps` layers, forwards or backwards. Returns false if other cuts are in the way.
bool Trial::move_cut(Cuts& cuts, std::size_t which, int steps) const {
    int cut = cuts[which];
    for (int step = 0; step < std::abs(steps); ++step) {
        const std::vector<int>& next = steps > 0 ? space_.grown(cut) : space_.shrunk(cut);
        const auto legal = std::find_if(next.begin(), next.end(), [&](int moved) {
            return steps > 0 ? space_.precedes(moved, cuts[which + 1]) : space_.precedes(cuts[which - 1], moved);
        });
        if (legal == next.end())
            return false;
        cut = *legal;
    }
    cuts[which] = cut;
    return true;
}

// Moves one cut at a time while that helps. `value_below` returns the value of cuts where it is below another.
template <class ValueBelow>
Trial::Walk Trial::descend(Walk walk, ValueBelow value_below) const {
    for (int stride = longest_move(); stride > 0;) {
        bool better = false;
        for (std::size_t which = 1; which + 1 < walk.cuts.size(); ++which)
            for (const int steps : {stride, -stride})
                for (Cuts moved = walk.cuts; move_cut(moved, which, steps); moved = walk.cuts) {
                    const std::optional<Value> value = value_below(moved, walk.value);
                    if (!value)
                        break;
                    walk = {std::move(moved), *value};
                    better = true;
                }
        if (!better)
            stride /= 2;
    }
    return walk;
}

// Moves up to `most` cuts at random.
Trial::Cuts Trial::perturbed(Cuts cuts, int most) {
    const auto pick = [this](int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); };
    for (int moves = 1 + pick(most); moves > 0; --moves) {
        const int which = 1 + pick(static_cast<int>(cuts.size()) - 2), steps = 1 + pick(2 * longest_move());
        move_cut(cuts, static_cast<std::size_t>(which), pick(2) == 0 ? steps : -steps);
    }
    return cuts;
}

// Climbs from the best cuts, and then from cuts near them, however bad these are: further away after more failures.
void Trial::climb(std::int64_t tasks, Deadline& deadline) {
    constexpr int kTries = 50;  // at one distance
    const std::int64_t end = spent_ + tasks;
    const auto is_over = [&] { return spent_ >= end || deadline.passed(); };
    const auto value_below = [&](const Cuts& cuts, const Value& above) {
        return is_over() ? std::nullopt : try_cuts(cuts, above);
    };
    const auto descend_from = [&](const Cuts& cuts, const Value& value) {
        const Walk walk = descend({cuts, value}, value_below);
        at_rest_ = at_rest_ || (walk.cuts == cuts_ && !is_over());
    };
    if (!at_rest_)
        descend_from(cuts_, best_);
    const int inner = static_cast<int>(cuts_.size()) - 2;
    while (inner > 0 && !is_over()) {
        const Cuts cuts = perturbed(cuts_, 3 + tries_in_vain_ / kTries % inner);
        ++tries_in_vain_;
        if (cuts == cuts_)
            spent_ += tasks_of_plan_;  // else there might be no end
        else if (const std::optional<Value> value = try_cuts(cuts, kWorst))
            descend_from(cuts, *value);
    }
}

int Trial::longest_move() const { return std::max(1, space_.layers() / (4 * found_.choice.stages)); }

// Returns cuts with the work of the devices as even as possible: the sum of its squares is about the least. If devices
// have several stages, the slowest stage says little about the slowest device.
Trial::Cuts Trial::balanced_cuts(Deadline& deadline) {
    constexpr int kRounds = 30;
    std::vector<double> loads;
    const auto value_below = [&](const Cuts& cuts, const Value& above) -> std::optional<Value> {
        deadline.check();
        loads.assign(found_.choice.devices.size(), 0);
        for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage) {
            const Piece& piece = pieces_->between(cuts[stage], cuts[stage + 1]);
            loads[plan_bound_->device_of(static_cast<int>(stage))] +=
                static_cast<double>(work_of(static_cast<int>(stage), piece));
        }
        double squares = 0;
        for (const double load : loads)
            squares += load * load;
        const Value value{0, bounded(std::sqrt(squares))};
        return value < above ? std::optional(value) : std::nullopt;
    };
    Walk best = {even_cuts(deadline), kWorst};
    if (best.cuts.empty())
        return {};
    best = descend(best, value_below);
    for (int round = 0; best.cuts.size() > 2 && round < kRounds; ++round) {
        Cuts cuts = perturbed(best.cuts, 3);
        if (const std::optional<Value> value = value_below(cuts, kWorst))
            best = std::min(best, descend({std::move(cuts), *value}, value_below),
                            [](const Walk& a, const Walk& b) { return a.value < b.value; });
    }
    return best.cuts;
}

}  // namespace pw

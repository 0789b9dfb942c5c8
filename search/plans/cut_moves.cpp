#include "search/plans/cut_moves.h"

#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

namespace pw {

// Moves a cut by `steps` layers, forwards or backwards. Returns false if other cuts are in the way.
bool CutMoves::move_cut(Cuts& cuts, std::size_t which, int steps) const {
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

ValuedCuts CutMoves::descend(ValuedCuts from, const ValueBelow& value_below) const {
    for (int stride = longest_move(); stride > 0;) {
        bool better = false;
        for (std::size_t which = 1; which + 1 < from.cuts.size(); ++which)
            for (const int steps : {stride, -stride})
                for (Cuts moved = from.cuts; move_cut(moved, which, steps); moved = from.cuts) {
                    const std::optional<CutValue> value = value_below(moved, from.value);
                    if (!value)
                        break;
                    from = {std::move(moved), *value};
                    better = true;
                }
        if (!better)
            stride /= 2;
    }
    return from;
}

Cuts CutMoves::perturbed(Cuts cuts, int most) {
    const auto pick = [this](int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); };
    for (int moves = 1 + pick(most); moves > 0; --moves) {
        const int which = 1 + pick(static_cast<int>(cuts.size()) - 2), steps = 1 + pick(2 * longest_move());
        move_cut(cuts, static_cast<std::size_t>(which), pick(2) == 0 ? steps : -steps);
    }
    return cuts;
}

Cuts balanced_cuts(const StageBounds& bounds, const StageSpace& space, CutMoves& moves, Deadline& deadline) {
    constexpr int kRounds = 30;
    std::vector<double> loads;
    const auto value_below = [&](const Cuts& cuts, const CutValue& other) -> std::optional<CutValue> {
        deadline.check();
        loads.assign(static_cast<std::size_t>(bounds.devices()), 0);
        for (int stage = 0; stage + 1 < std::ssize(cuts); ++stage) {
            const Piece& piece = bounds.pieces().between(cuts[stage], cuts[stage + 1]);
            loads[bounds.plan().device_of(stage)] += static_cast<double>(bounds.work(stage, piece));
        }
        double squares = 0;
        for (const double load : loads)
            squares += load * load;
        const CutValue value{0, bounded(std::sqrt(squares))};
        return value < other ? std::optional(value) : std::nullopt;
    };
    ValuedCuts best = {even_cuts(bounds, space, deadline), kWorstCuts};
    if (best.cuts.empty())
        return {};
    best = moves.descend(best, value_below);
    for (int round = 0; best.cuts.size() > 2 && round < kRounds; ++round) {
        Cuts cuts = moves.perturbed(best.cuts, 3);
        if (const std::optional<CutValue> value = value_below(cuts, kWorstCuts))
            best = std::min(best, moves.descend({std::move(cuts), *value}, value_below),
                            [](const ValuedCuts& a, const ValuedCuts& b) { return a.value < b.value; });
    }
    return best.cuts;
}

}  // namespace pw

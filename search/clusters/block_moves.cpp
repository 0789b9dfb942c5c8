#include "search/clusters/block_moves.h"

#include "search/clusters/plan_attempts.h"
#include "workloads/lower_bound.h"

#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::size_t kMovesAtOnce = 8;
constexpr int kMostMoves = 8;

// Among plans that do not fit, the smaller plan is nearer.
bool is_nearer(const FoundPlan& a, const FoundPlan& b) {
    return a.fits || b.fits ? is_better(a, b) : a.most_reserved() < b.most_reserved();
}

bool refuses(const PlanChoice& choice, const SearchSetup& setup, const PlanLimits& limits) {
    return limits.refusal && !limits.refusal(setup_of(setup, choice)).empty();
}

}  // namespace

std::vector<std::optional<FoundPlan>> balanced_plans(const std::vector<const PlanChoice*>& equal,
                                                     const SearchSetup& setup, const PlanLimits& limits,
                                                     const Deadline& deadline) {
    std::vector<PlanChoice> balanced;
    std::vector<std::size_t> places;
    for (std::size_t place = 0; place < equal.size(); ++place) {
        PlanChoice choice = *equal[place];
        choice.blocks = balanced_blocks(setup, choice);
        if (!refuses(choice, setup, limits)) {
            balanced.push_back(std::move(choice));
            places.push_back(place);
        }
    }
    std::vector<const PlanChoice*> tried;
    for (const PlanChoice& choice : balanced)
        tried.push_back(&choice);
    std::vector<std::optional<FoundPlan>> plans(equal.size());
    std::vector<Attempt> attempts = attempts_at(tried, setup, limits, deadline);
    for (std::size_t k = 0; k < attempts.size(); ++k)
        plans[places[k]] = std::move(attempts[k].plan);
    return plans;
}

FoundPlan with_moved_blocks(FoundPlan balanced, const ChoiceBounds& bounds, const SearchSetup& setup,
                            const PlanLimits& limits, const Deadline& deadline, const std::function<bool()>& is_over) {
    FoundPlan best = std::move(balanced);
    if (!best.fits && bounds.fits) {
        PlanChoice usual = best.choice;
        usual.blocks = usual_blocks(setup, usual);
        if (std::optional<FoundPlan> plan = attempts_at({&usual}, setup, limits, deadline).front().plan)
            best = std::move(*plan);
    }
    for (int moves = 0; moves < kMostMoves && !is_over(); ++moves) {
        std::vector<PlanChoice> nearby = moves_of(setup, best.choice, static_cast<unsigned>(moves), kMovesAtOnce);
        std::erase_if(nearby, [&](const PlanChoice& choice) { return refuses(choice, setup, limits); });
        std::vector<const PlanChoice*> tried;
        for (const PlanChoice& one : nearby)
            tried.push_back(&one);
        bool is_moved = false;
        for (Attempt& attempt : attempts_at(tried, setup, limits, deadline))
            if (attempt.plan && is_nearer(*attempt.plan, best)) {
                best = std::move(*attempt.plan);
                is_moved = true;
            }
        if (!is_moved)
            break;
    }
    if (best.fits)
        check_lower_bound(bounds.least_moved, best.step_time, print(best.choice));
    return best;
}

}  // namespace pw

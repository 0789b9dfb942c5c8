#include "search/clusters/block_moves.h"

#include "job/transformer_job.h"
#include "search/clusters/plan_attempts.h"
#include "workloads/lower_bound.h"

#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::size_t kMovesAtOnce = 8;
constexpr int kMostMoves = 8;

// A plan that does not fit is the nearer one if it is smaller.
bool is_nearer(const ClusterPlan& a, const ClusterPlan& b) {
    return a.fits || b.fits ? is_better(a, b) : a.most_reserved() < b.most_reserved();
}

}  // namespace

std::optional<ClusterPlan> with_moved_blocks(const ClusterChoice& equal, const ChoiceBounds& bounds,
                                             const Config& config, const ClusterLimits& limits,
                                             const Deadline& deadline, const std::function<bool()>& is_over) {
    const auto refuses = [&](const ClusterChoice& choice) {
        return limits.refusal && !limits.refusal(config_of(config, choice)).empty();
    };
    const auto plan_of = [&](const ClusterChoice& choice) {
        return attempts_at({&choice}, config, limits, deadline).front().plan;
    };
    ClusterChoice choice = equal;
    choice.blocks = balanced_blocks(config, equal);
    if (refuses(choice))
        return std::nullopt;
    std::optional<ClusterPlan> best = plan_of(choice);
    if (best && !best->fits && bounds.fits) {
        choice.blocks = even_blocks(config.workload.transformer->layers, choice.stages());
        best = plan_of(choice);
    }
    for (int moves = 0; best && moves < kMostMoves && !is_over(); ++moves) {
        std::vector<ClusterChoice> nearby = moves_of(config, best->choice, static_cast<unsigned>(moves), kMovesAtOnce);
        std::erase_if(nearby, refuses);
        std::vector<const ClusterChoice*> tried;
        for (const ClusterChoice& one : nearby)
            tried.push_back(&one);
        bool is_moved = false;
        for (Attempt& attempt : attempts_at(tried, config, limits, deadline))
            if (attempt.plan && is_nearer(*attempt.plan, *best)) {
                best = std::move(attempt.plan);
                is_moved = true;
            }
        if (!is_moved)
            break;
    }
    if (best && best->fits)
        check_lower_bound(bounds.least_moved, best->step_time, print(best->choice));
    return best;
}

}  // namespace pw

#include "workloads/stages/rounds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kMostTries = 8;  // tried begins of a round, if not every place is a candidate

// Cuts a chain into rounds, and every round into stages of which the longest is as short as can be.
class Rounds {
public:
    explicit Rounds(const BalanceProblem& problem)
        : problem_(problem),
          devices_(static_cast<int>(problem.holders.speed.size())),
          rounds_((problem.stages + devices_ - 1) / devices_) {
        std::vector<int> places;
        for (int place = 0; place <= kMostCandidates; ++place)
            places.push_back(static_cast<int>(std::int64_t{problem.layers} * place / kMostCandidates));
        for (int round = 0; round <= rounds_; ++round)
            places.push_back(static_cast<int>(std::int64_t{problem.layers} * round / rounds_));
        take_candidates(std::move(places));
    }

    std::vector<int> cuts() {
        constexpr int kPasses = 4;  // passes near the ends found so far, if not every place was a candidate
        std::vector<int> ends = best_ends();
        for (int pass = 0; pass < kPasses && problem_.layers > kMostCandidates; ++pass) {
            take_candidates(places_near(ends));
            std::vector<int> better = best_ends();
            if (better == ends)
                break;
            ends = std::move(better);
        }
        std::vector<int> cuts = {0};
        for (int round = 0; round < rounds_; ++round) {
            const std::vector<int> own = cuts_of(round, cuts.back(), ends[static_cast<std::size_t>(round)]);
            cuts.insert(cuts.end(), own.begin(), own.end());
        }
        return cuts;
    }

private:
    void take_candidates(std::vector<int> places) {
        candidates_ = std::move(places);
        std::ranges::sort(candidates_);
        candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
    }

    std::vector<int> places_near(const std::vector<int>& ends) const {
        const int reach = std::max(2, kMostCandidates / (2 * rounds_));
        std::vector<int> places = {0, problem_.layers};
        for (const int end : ends)
            for (int place = std::max(0, end - reach); place <= std::min(problem_.layers, end + reach); ++place)
                places.push_back(place);
        return places;
    }

    int first_stage(int round) const { return std::min(round * devices_, problem_.stages); }

    // Returns the ends of the stages of a round, each as long as the limit allows, from the first stage on. Empty where
    // the last stage does not reach `to`.
    std::vector<int> filled(int round, int from, int to, double limit) const {
        std::vector<int> ends;
        const int last = first_stage(round + 1);
        for (int stage = first_stage(round); stage < last; ++stage) {
            const double most = problem_.sums[from] + limit * problem_.holders.speed[stage % devices_];
            const auto begin = problem_.sums.begin() + from + 1, end = problem_.sums.begin() + to - (last - stage - 2);
            const int reach = from + static_cast<int>(std::upper_bound(begin, end, most) - begin);
            if (reach == from)
                return {};
            ends.push_back(from = reach);
        }
        return from == to ? ends : std::vector<int>{};
    }

    double longest(int round, int from, const std::vector<int>& ends) const {
        double longest = 0;
        for (std::size_t i = 0; i < ends.size(); from = ends[i++])
            longest = std::max(longest, problem_.time_on(problem_.holders.device_of[first_stage(round) + i],
                                                         problem_.work(from, ends[i])));
        return longest;
    }

    // By bisection, to a millionth. A smaller rest does not count.
    std::vector<int> cuts_of(int round, int from, int to) const {
        constexpr double kEnough = 1e-6;
        double slowest = std::numeric_limits<double>::infinity();
        for (int device = 0; device < first_stage(round + 1) - first_stage(round); ++device)
            slowest = std::min(slowest, problem_.holders.speed[device]);
        double too_short = 0, enough = problem_.work(from, to) / slowest * (1 + 1e-9);  // whatever is rounded
        std::vector<int> best = filled(round, from, to, enough);
        while (enough - too_short > kEnough * enough) {
            const double middle = (too_short + enough) / 2;
            std::vector<int> ends = filled(round, from, to, middle);
            if (ends.empty()) {
                too_short = middle;
            } else {
                enough = std::clamp(longest(round, from, ends), too_short, middle);
                best = std::move(ends);
            }
        }
        return best;
    }

    // Dynamic programming over the rounds and where they end.
    std::vector<int> best_ends() const {
        std::vector<std::vector<Sum>> tables = {std::vector<Sum>(candidates_.size())};
        tables[0][0].squares = 0;
        for (int round = 0; round < rounds_; ++round) {
            std::vector<Sum> table;
            for (const int end : candidates_)
                table.push_back(least_sum(round, tables.back(), end));
            tables.push_back(std::move(table));
        }
        std::vector<int> ends;
        std::size_t end = candidates_.size() - 1;
        for (int round = rounds_; round > 0; --round) {
            ends.push_back(candidates_[end]);
            end = tables[static_cast<std::size_t>(round)][end].begin;
        }
        std::ranges::reverse(ends);
        return ends;
    }

    // The squares of the longest stages of the first rounds, and the begin of the last of these rounds.
    struct Sum {
        double squares = std::numeric_limits<double>::infinity();
        std::size_t begin = 0;
    };

    // Tries begins of the round, first the begins that would be best for a round without remainders. Of equals, takes
    // the last.
    Sum least_sum(int round, const std::vector<Sum>& before, int end) const {
        double speeds = 0;
        for (int device = 0; device < first_stage(round + 1) - first_stage(round); ++device)
            speeds += problem_.holders.speed[device];
        std::vector<Sum> begins;
        for (std::size_t begin = 0; begin < candidates_.size() && candidates_[begin] < end; ++begin)
            if (before[begin].squares < Sum{}.squares && is_legal(round, candidates_[begin], end)) {
                const double even = problem_.work(candidates_[begin], end) / speeds;
                begins.push_back({before[begin].squares + even * even, begin});
            }
        std::ranges::sort(begins, [](const Sum& a, const Sum& b) {
            return std::pair(a.squares, b.begin) < std::pair(b.squares, a.begin);
        });
        Sum least;
        if (problem_.layers > kMostCandidates)
            begins.resize(std::min(begins.size(), kMostTries));
        for (const auto& [bound, begin] : begins) {
            if (bound > least.squares)
                break;
            const double own = longest(round, candidates_[begin], cuts_of(round, candidates_[begin], end));
            const double squares = before[begin].squares + own * own;
            if (squares < least.squares || (squares == least.squares && begin > least.begin))
                least = {squares, begin};
        }
        return least;
    }

    // No stage of the round or of a later round is empty, and the last round ends with the chain.
    bool is_legal(int round, int from, int to) const {
        return to - from >= first_stage(round + 1) - first_stage(round) &&
               problem_.layers - to >= problem_.stages - first_stage(round + 1) &&
               (round + 1 < rounds_ || to == problem_.layers);
    }

    const BalanceProblem& problem_;
    int devices_, rounds_;
    std::vector<int> candidates_;  // where a round may end, ascending
};

}  // namespace

std::vector<int> cuts_of_rounds(const BalanceProblem& problem) { return Rounds(problem).cuts(); }

}  // namespace pw

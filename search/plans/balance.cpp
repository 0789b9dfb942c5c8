#include "search/plans/balance.h"

#include <algorithm>

namespace pw {

namespace {

constexpr int kHalvings = 10;  // of the distance between the two times

class Balancer {
public:
    Balancer(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Deadline& deadline)
        : pieces_(pieces), stages_(stages), devices_(devices), time_on_(time_on), deadline_(deadline) {
        for (int cut = 0; cut < pieces.cuts(); ++cut)
            fewest_.emplace_back(pieces.from(cut).size());
    }

    // Returns whether the devices are enough to keep every stage within `time`.
    bool reaches(Ns time) {
        const int whole = pieces_.cuts() - 1;
        needs_.assign(static_cast<std::size_t>(stages_) + 1, std::vector<int>(fewest_.size(), devices_ + 1));
        needs_[stages_][whole] = 0;
        for (int cut = 0; cut < whole; ++cut) {
            deadline_.check();
            for (std::size_t i = 0; i < fewest_[cut].size(); ++i)
                fewest_[cut][i] = fewest(time, pieces_.from(cut)[i]);
        }
        for (int stage = stages_ - 1; stage >= 0; --stage) {
            deadline_.check();
            for (int cut = 0; cut < (stage == 0 ? 1 : whole); ++cut)
                needs_[stage][cut] = least_needs(stage, cut);
        }
        return needs_[0][0] <= devices_;
    }

private:
    // Returns the devices that a piece needs, or one more than there are when these are not enough.
    int fewest(Ns time, const Piece& piece) const {
        int low = 1, high = devices_ + 1;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (time_on_(middle, piece) <= time)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    // Returns the devices that this stage and all later stages need from `cut` on.
    int least_needs(int stage, int cut) const {
        int least = devices_ + 1;
        const std::vector<Piece>& pieces = pieces_.from(cut);
        for (std::size_t i = 0; i < pieces.size(); ++i)
            least = std::min(least, needs_[stage + 1][pieces[i].to] + fewest_[cut][i]);
        return least;
    }

    const Pieces& pieces_;
    int stages_, devices_;
    const TimeOn& time_on_;
    Deadline& deadline_;
    std::vector<std::vector<int>> fewest_;  // [cut][piece]: devices
    std::vector<std::vector<int>> needs_;   // [stage][cut]: devices of the stage and all later stages
};

}  // namespace

Ns bound_of_sharing(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Ns below, Ns above,
                    Deadline& deadline) {
    Balancer balancer(pieces, stages, devices, time_on, deadline);
    Ns reached = std::max(above, below);
    while (!balancer.reaches(reached)) {
        if (reached >= kNeverFits)
            return kNeverFits;
        below = reached + 1;
        reached = std::min(kNeverFits, 2 * reached + 1);
    }
    for (int halving = 0; halving < kHalvings && below < reached; ++halving) {
        const Ns middle = below + (reached - below) / 2;
        if (balancer.reaches(middle))
            reached = middle;
        else
            below = middle + 1;
    }
    return below;
}

std::vector<int> shares_by_time(const std::vector<const Piece*>& stages, int devices, const TimeOn& time_on) {
    std::vector<int> shares(stages.size(), 1);
    std::vector<Ns> times;
    for (const Piece* piece : stages)
        times.push_back(time_on(1, *piece));
    for (auto left = devices - static_cast<int>(stages.size()); left > 0; --left) {
        const auto slowest = std::max_element(times.begin(), times.end()) - times.begin();
        times[slowest] = time_on(++shares[slowest], *stages[slowest]);
    }
    return shares;
}

}  // namespace pw

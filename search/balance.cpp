#include "search/balance.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

    // Whether the devices are enough to keep every stage within `time`; `needs_` then says which.
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
                needs_[stage][cut] = least_needs(stage, cut).first;
        }
        return needs_[0][0] <= devices_;
    }

    // Of the time that was last reached. What is left over goes to the slowest stages.
    std::vector<int> replicas() const {
        std::vector<int> replicas;
        std::vector<const Piece*> stage_pieces;
        for (int stage = 0, cut = 0; stage < stages_; ++stage) {
            const std::size_t next = least_needs(stage, cut).second;
            replicas.push_back(fewest_[cut][next]);
            stage_pieces.push_back(&pieces_.from(cut)[next]);
            cut = stage_pieces.back()->to;
        }
        for (int left = devices_ - std::accumulate(replicas.begin(), replicas.end(), 0); left > 0; --left) {
            std::vector<Ns> times;
            for (int stage = 0; stage < stages_; ++stage)
                times.push_back(time_on_(replicas[stage], *stage_pieces[stage]));
            ++replicas[std::max_element(times.begin(), times.end()) - times.begin()];
        }
        return replicas;
    }

private:
    // Devices for one piece; one more than there are when that is not enough.
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

    // For this stage and all later ones from `cut` on; and the number of the first piece with so few.
    std::pair<int, std::size_t> least_needs(int stage, int cut) const {
        std::pair<int, std::size_t> least{devices_ + 1, 0};
        const std::vector<Piece>& pieces = pieces_.from(cut);
        for (std::size_t i = 0; i < pieces.size(); ++i)
            if (const int needs = needs_[stage + 1][pieces[i].to] + fewest_[cut][i]; needs < least.first)
                least = {needs, i};
        return least;
    }

    const Pieces& pieces_;
    int stages_, devices_;
    const TimeOn& time_on_;
    Deadline& deadline_;
    std::vector<std::vector<int>> fewest_;  // [cut][piece]: devices
    std::vector<std::vector<int>> needs_;   // [stage][cut]: devices of it and all later stages
};

}  // namespace

Balance balance_of(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Ns below, Ns above,
                   Deadline& deadline) {
    constexpr Ns kNever = std::numeric_limits<Ns>::max() / 4;
    Balancer balancer(pieces, stages, devices, time_on, deadline);
    Ns reached = std::max(above, below);
    while (!balancer.reaches(reached)) {
        if (reached > kNever)
            return {kNever, {}};
        below = reached + 1;
        reached = std::max<Ns>(1, 2 * reached);
    }
    std::vector<int> replicas = balancer.replicas();
    for (int halving = 0; halving < kHalvings && below < reached; ++halving) {
        const Ns middle = below + (reached - below) / 2;
        if (balancer.reaches(middle)) {
            reached = middle;
            replicas = balancer.replicas();
        } else {
            below = middle + 1;
        }
    }
    return {below, replicas};
}

}  // namespace pw

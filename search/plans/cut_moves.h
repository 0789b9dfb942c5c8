// Moves of the cuts of a split: one at a time while that helps, or some at random.
#pragma once

#include "search/plans/cut_tables.h"

#include <compare>
#include <functional>
#include <limits>
#include <optional>
#include <random>

namespace pw {

// A split is better than another if it lacks fewer bytes, or as many bytes and takes less time.
struct CutValue {
    Bytes shortage;
    Ns time;
    auto operator<=>(const CutValue&) const = default;
};
inline constexpr CutValue kWorstCuts{std::numeric_limits<Bytes>::max(), kNeverFits};

struct ValuedCuts {
    Cuts cuts;
    CutValue value;
};

// Returns the value of the cuts if it is below the other.
using ValueBelow = std::function<std::optional<CutValue>(const Cuts& cuts, const CutValue& other)>;

// It refers to the space.
class CutMoves {
public:
    CutMoves(const StageSpace& space, int stages) : space_(space), stages_(stages) {}

    // Moves one cut at a time while that helps.
    ValuedCuts descend(ValuedCuts from, const ValueBelow& value_below) const;
    // Moves up to `most` cuts at random, in the same way in every search.
    Cuts perturbed(Cuts cuts, int most);

private:
    bool move_cut(Cuts& cuts, std::size_t which, int steps) const;
    int longest_move() const { return std::max(1, space_.units() / (4 * stages_)); }

    const StageSpace& space_;
    int stages_;
    std::minstd_rand random_;
};

// Returns cuts with the work of the devices as even as possible: the sum of its squares is about the least. If devices
// have several stages, the slowest stage says little about the slowest device. Empty if stages do not fit. Throws
// TimeIsUp.
Cuts balanced_cuts(const StageBounds& bounds, const StageSpace& space, CutMoves& moves, Deadline& deadline);

}  // namespace pw

// Bounds on all choices of a search for a cluster.
#pragma once

#include "search/partition.h"
#include "search/plan_choice.h"
#include "search/search_team.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace pw {

struct ChoiceBounds {
    bool is_defined = false;  // false: the schedule refuses the choice, or the time was up
    bool fits = false;
    Ns step_time = 0;
    Shortage shortage;  // of the device that lacks most
    // With any numbers of blocks on the stages; the defaults where only the usual numbers are possible.
    bool may_fit_moved = false;
    Ns least_moved = kNoStep;     // a lower bound on the step, if some numbers may fit
    Ns expected_moved = kNoStep;  // about the step of balanced_blocks(), if worth a try

    static constexpr Ns kNoStep = std::numeric_limits<Ns>::max();
    Bytes lack() const { return shortage.needs - shortage.has; }
    bool fits_only_moved() const { return may_fit_moved && !fits; }
};

// Works on the process's part of the numbers below `count`, perhaps on several threads and not on all.
using WorkOnAll =
    std::function<void(const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work)>;

struct BoundsOfChoices {
    std::vector<ChoiceBounds> of;  // by choice
    int without_memory = 0;        // choices without bounds, as there is not the memory for their plans
};
// The processes of `team` call this together and get the same bounds.
BoundsOfChoices bounds_of(const SearchSetup& setup, const std::vector<PlanChoice>& choices, const WorkOnAll& on_all,
                          const SearchTeam& team = {});

// Returns the numbers of blocks that balance the devices of a choice, of each stage (search/clusters/split_bounds.h).
std::vector<int> balanced_blocks(const SearchSetup& setup, const PlanChoice& choice);
// Returns the numbers of blocks of a choice that names none.
std::vector<int> usual_blocks(const SearchSetup& setup, const PlanChoice& choice);
// Returns in how many ways a choice's stages can have the blocks, at most `most`.
std::int64_t divisions_of(int blocks, int stages, std::int64_t most);
// A division of the blocks of a choice. No plan with this division has a shorter step.
struct BoundedDivision {
    Ns step_time = 0;
    std::vector<int> blocks;
};
// Returns all divisions of a choice whose memory may fit, without divisions that are no faster than `limit`.
std::vector<BoundedDivision> bounded_divisions(const SearchSetup& setup, const PlanChoice& choice, Ns limit);

// Returns at most `most` choices with other numbers of blocks, as moves_of() makes them.
std::vector<PlanChoice> moves_of(const SearchSetup& setup, const PlanChoice& choice, unsigned seed, std::size_t most);

// Returns the shortage of the device that lacks most, or has least left.
Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices);

}  // namespace pw

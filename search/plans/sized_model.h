// A model with its times and bytes at one micro-batch size, and with the layers that are recomputed.
#pragma once

#include "search/plans/judge.h"
#include "search/plans/stage_space.h"

#include <map>
#include <mutex>

namespace pw {

// It refers to the space.
class SizedModel {
public:
    // `recomputed` is PlanChoice::layers.
    SizedModel(const SearchProblem& problem, const StageSpace& space, int samples,
               const std::vector<std::string>& recomputed);
    // Returns the pieces, which the first call makes, from any thread. Throws TimeIsUp.
    const Pieces& pieces(BackwardForm form, Deadline& deadline) const;

    Model model;
    Profile profile;
    CostTable costs;               // refers to both
    Ns forward = 0, backward = 0;  // times of all layers at speed 1, undisturbed by other devices
    Bytes weights = 0;

private:
    const StageSpace& space_;
    mutable std::mutex mutex_;
    mutable std::map<BackwardForm, Pieces> pieces_;
};

}  // namespace pw

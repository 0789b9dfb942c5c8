// A model with its times and bytes at one micro-batch size, and with the layers that are recomputed or offloaded.
#pragma once

#include "search/plans/judge.h"
#include "search/plans/stage_space.h"

#include <map>
#include <mutex>

namespace pw {

// It refers to the space.
class SizedModel {
public:
    // The choice has the micro-batch size, the recomputed layers and whether stages are offloaded. In stages that are
    // not, offloaded layers hold their tensors as all layers do.
    SizedModel(const SearchProblem& problem, const StageSpace& space, const PlanChoice& choice);
    // Returns the pieces, which the first call makes, from any thread. Throws TimeIsUp.
    const Pieces& pieces(BackwardForm form, Deadline& deadline) const;

    Model model;
    Profile profile;
    CostTable costs;  // refers to both
    // Times of all layers at speed 1, undisturbed by other devices.
    Ns forward = 0, backward = 0, accumulate = 0, update = 0;
    Bytes weights = 0;

private:
    const StageSpace& space_;
    mutable std::mutex mutex_;
    mutable std::map<BackwardForm, Pieces> pieces_;
};

}  // namespace pw

// A model with its times and bytes at one micro-batch size.
#pragma once

#include "search/plans/judge.h"
#include "search/plans/stage_space.h"

#include <map>
#include <mutex>

namespace pw {

// It refers to the problem and the space.
class SizedModel {
public:
    SizedModel(const SearchProblem& problem, const StageSpace& space, int samples);
    // Returns the pieces, which the first call makes, from any thread. Throws TimeIsUp.
    const Pieces& pieces(BackwardForm form, Deadline& deadline) const;

    Profile profile;
    CostTable costs;
    Ns forward = 0, backward = 0;  // times of all layers at speed 1, undisturbed by other devices
    Bytes weights = 0;

private:
    const SearchProblem& problem_;
    const StageSpace& space_;
    mutable std::mutex mutex_;
    mutable std::map<BackwardForm, Pieces> pieces_;
};

}  // namespace pw

// Lower bounds on the costs of a stage of a choice's plan if it is a given piece of the model.
#pragma once

#include "search/plans/plan_bound.h"

#include <functional>
#include <vector>

namespace pw {

// Returns a number of a stage that is this piece, such as a time, or kNeverFits if the stage cannot be this piece.
using NumberOfStage = std::function<Ns(int stage, const Piece& piece)>;

// It refers to the pieces.
class StageBounds {
public:
    // `plan` gives the order of tasks, whatever its edges. `setup` has the choice.
    StageBounds(const Plan& plan, const Setup& setup, Ns dispatch, const Pieces& pieces, const SliceEndRange& slices);

    int stages() const { return stages_; }
    int devices() const { return static_cast<int>(speeds_.size()); }
    bool shares_devices() const { return stages() > devices(); }  // some devices have several stages
    bool same_speed() const { return same_speed_; }               // of all devices
    bool limited() const { return limited_; }                     // some device's memory is limited
    const PlanBound& plan() const { return plan_; }
    const Pieces& pieces() const { return pieces_; }

    // Returns the bytes that the device lacks, or 0 if no memory is limited.
    Bytes shortage(int stage, const Piece& piece) const;
    // Returns a lower bound on the step time of splits in which `stage` is this piece, or kNeverFits if it does not
    // fit.
    Ns step_time(int stage, const Piece& piece) const;
    // Returns the time of the stage's passes on its device, or kNeverFits if the stage does not fit.
    Ns work(int stage, const Piece& piece) const;

private:
    PlanBound plan_;
    const Pieces& pieces_;
    int stages_;
    std::vector<double> speeds_;  // by device of the plan
    bool limited_ = false, same_speed_ = true;
};

}  // namespace pw

// A choice under search: its bounds, and the best split so far.
#pragma once

#include "search/plans/balance.h"
#include "search/plans/cut_moves.h"
#include "search/plans/makespan.h"
#include "search/plans/sized_model.h"
#include "workloads/error.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

class Trial {
public:
    // At first a trial only has cheap estimates: a bound, and the expected time. It refers to its arguments.
    Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice);

    // Computes the bounds, once. Sets refused() if the schedule is not defined for the choice. Throws TimeIsUp, as the
    // functions below may.
    void open(Deadline& deadline);
    bool is_too_long() const { return too_long_; }  // there was no time for its plan: it cannot be opened
    bool is_open() const { return open_; }
    const std::optional<Error>& refused() const { return refused_; }  // why (absent when not refused)
    bool is_beyond() const { return beyond_; }  // refused because some of its splits go beyond what is counted
    void close() { judge_.reset(); }            // gives the simulators back until they are needed again

    // Simulates the splits that the bounds propose.
    void propose(Deadline& deadline);
    // Moves cuts while that helps, for about `tasks` simulated tasks.
    void climb(std::int64_t tasks, Deadline& deadline);
    // Raises the bound if devices have several stages, not beyond `limit`. `effort` is in multiples of the usual
    // effort.
    void sharpen(Ns limit, int effort, Deadline& deadline);
    bool is_sharp() const { return sharp_; }
    // Raises the bound to a bound that holds for any order of the tasks. It does not hold if passes overlap in pairs,
    // or if mini-batches overlap.
    void raise_to_any_order(Ns bound);
    bool has_bound_of_any_order() const { return any_order_ && sharp_ && !refused_; }
    // Whether the order depends on the split: a better order may remain, so that no split is proven, and few splits are
    // tried.
    bool orders_by_costs() const { return orders_by_costs_; }
    // Tries the split of a plan with as many stages.
    void adopt(const Trial& other, Deadline& deadline);
    // Moves the cuts of the best split under its order, orders the tasks of the moved cuts anew, and goes on from
    // there.
    void polish(double effort, Deadline& deadline);
    // Looks for a better order of the best split.
    void refine(double effort, Deadline& deadline);
    // Tries every split whose bound is below `limit`. True when none is left.
    bool prove(Ns limit, std::int64_t tasks, Deadline& deadline);

    // Returns a lower bound on the step time of all splits of this choice, or kNeverFits if none fits.
    Ns bound() const { return found_.lower_bound; }
    // Returns about the time of even stages, or kNeverFits if they could not fit. Choices with the least are tried
    // first.
    Ns expected() const { return expected_; }
    // Returns a lower bound on the step time over all ways to share out all devices among as many stages.
    Ns bound_of_any_shares(Deadline& deadline) const;
    // Returns all devices shared out among stages of equal work, or nothing where stages do not fit.
    std::vector<int> shares_by_work(Deadline& deadline) const;
    // Returns the same bound whatever the order and number of the devices, of which there are more, with speeds that
    // add up to this.
    Ns bound_of_any_devices(double speeds) const;
    const FoundPlan& found() const { return found_; }
    bool has_plan() const { return found_.split.stages() > 0; }
    bool fits() const { return found_.fits; }
    Ns step_time() const { return found_.step_time; }
    // These fill in numbers that are only reported: the reserved memory, and the bubble rate as well.
    void settle();
    void finish();
    std::chrono::steady_clock::duration step_lasts() const { return step_lasts_; }  // how long simulating a plan takes
    std::int64_t candidates() const { return candidates_; }
    std::int64_t spent() const { return spent_; }  // simulated tasks, and pieces looked at

private:
    void expect();
    int slices() const { return found_.choice.micro_batches * found_.choice.slices; }  // of all micro-batches
    double rounded_tasks(double speeds) const;
    Judge& judge();
    void check_time_for_plan(const Deadline& deadline);
    bool is_defined();
    void refuse(const Error& error);
    void find_bounds(Deadline& deadline);
    bool has_windows();
    NumberOfStage least_step_time() const;
    NumberOfStage work() const;
    TimeOn time_on() const;
    void propose_by(const CutTable& table, const NumberOfStage& number);
    void propose_what_fits(Deadline& deadline);
    StageSplit split_of(const Cuts& cuts) const;
    std::optional<CutValue> try_cuts(const Cuts& cuts, const CutValue& above);
    Cuts moved_under_order(const Cuts& cuts);
    Judge& judge_of_found();
    void keep(const Cuts& cuts, const StageSplit& split, const CutValue& value,
              const std::optional<Shortage>& shortage);

    const SearchProblem& problem_;
    const StageSpace& space_;
    const SizedModel& model_;
    std::unique_ptr<Judge> judge_;
    std::optional<StageBounds> bounds_;
    CutTable least_;  // of the bounds on the step time
    std::int64_t tasks_of_plan_ = 0;
    std::chrono::steady_clock::duration step_lasts_{0};
    bool open_ = false;
    bool too_long_ = false;
    std::optional<Error> refused_;
    bool beyond_ = false;
    StepWork work_;
    Ns expected_ = 0;
    bool sharp_ = false;
    bool any_order_ = false;  // of all tasks (otherwise the costs may decide where R run)
    bool orders_by_costs_ = false;
    bool has_pairs_ = false;  // of passes that overlap
    FoundPlan found_;
    Cuts cuts_;             // cuts of the plan found
    bool at_rest_ = false;  // no move of a single cut helps
    CutValue best_ = kWorstCuts;
    int tries_in_vain_ = 0;  // to find better cuts near them
    CutMoves moves_;
    std::int64_t candidates_ = 0, spent_ = 0;
};

}  // namespace pw

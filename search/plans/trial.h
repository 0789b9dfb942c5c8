// One choice under search: its bounds, and the best split so far.
#pragma once

#include "search/deadline.h"
#include "search/plans/balance.h"
#include "search/plans/makespan.h"
#include "search/plans/plan_bound.h"
#include "workloads/error.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// A model with its times and bytes at one micro-batch size.
class SizedModel {
public:
    SizedModel(const SearchProblem& problem, const StageSpace& space, int samples);
    // Returns the pieces, which the first call makes, from any thread. Throws TimeIsUp.
    const Pieces& pieces(bool split_backward, Deadline& deadline) const;

    Profile profile;
    CostTable costs;
    Ns forward = 0, backward = 0;  // times of all layers at speed 1, undisturbed by other devices
    Bytes weights = 0;

private:
    const SearchProblem& problem_;
    const StageSpace& space_;
    mutable std::mutex mutex_;
    mutable std::optional<Pieces> fused_, split_;
};

class Trial {
public:
    // At first a trial only has cheap estimates: a bound, and the expected time.
    Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice);

    // Computes the bounds, once; refused() if the schedule is not defined for the choice. Throws TimeIsUp, as the
    // functions below may.
    void open(Deadline& deadline);
    bool is_too_long() const { return too_long_; }  // there was no time to make its plan: it cannot be opened
    bool is_open() const { return open_; }
    const std::optional<Error>& refused() const { return refused_; }  // why; absent when it is not refused
    bool is_beyond() const { return beyond_; }  // refused because some of its splits go beyond what is counted
    void close() { judge_.reset(); }            // gives the simulators back until they are needed again

    // Simulates the splits that the bounds propose.
    void propose(Deadline& deadline);
    // Moves cuts while that helps, for about `tasks` simulated tasks.
    void climb(std::int64_t tasks, Deadline& deadline);
    // Raises the bound if devices have several stages; once, and not beyond `limit`.
    void sharpen(Ns limit, Deadline& deadline);
    bool is_sharp() const { return sharp_; }
    // Tries every split whose bound is below `limit`. True when none is left.
    bool prove(Ns limit, std::int64_t tasks, Deadline& deadline);

    // Returns a lower bound on the step time of all splits of this choice; kNever if none fits.
    Ns bound() const { return found_.lower_bound; }
    // Returns about the time of even stages, or kNever if they could not fit. Choices with the least are tried first.
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

    static constexpr Ns kNever = std::numeric_limits<Ns>::max() / 4;

private:
    using Cuts = std::vector<int>;               // cuts from 0 to space.whole()
    using Table = std::vector<std::vector<Ns>>;  // [stage][cut]: least bottleneck of this and all later stages
    struct Value {
        Bytes shortage;
        Ns time;
        auto operator<=>(const Value&) const = default;
    };
    static constexpr Value kWorst{std::numeric_limits<Bytes>::max(), kNever};
    template <class Cost, class Joined>
    Table least(Cost cost, Joined joined, Deadline& deadline) const;
    template <class Cost>
    Table least_bottleneck(Cost cost, Deadline& deadline) const;
    template <class Cost>
    Cuts cuts_of(const Table& table, Cost cost) const;
    Cuts even_cuts(Deadline& deadline) const;
    Cuts balanced_cuts(Deadline& deadline);
    void expect();
    double rounded_tasks(double speeds) const;
    Ns bound_of(int stage, const Piece& piece) const;
    Ns work_of(int stage, const Piece& piece) const;  // on its device; kNever when the piece does not fit
    TimeOn time_on() const;
    Bytes shortage_of(int stage, const Piece& piece) const;

    // A split under construction: the cuts so far, and the work of every device.
    struct Load {
        Ns head = -1, tail = 0;  // those of its first stage; head is -1 where it has none
        Ns until_last_backward = 0, whole = 0;
        // There are two conditions: on all work, and on the path from the last backward to the first layers.
        Ns in_all() const { return std::max(head, Ns{0}) + whole; }
        Ns with_way_back() const { return std::max(head, Ns{0}) + until_last_backward + tail; }
    };
    struct Descent {
        Cuts cuts = {0};
        std::vector<Load> loads;
        Ns limit;
    };
    struct Level {  // a stage of a descent: the pieces that it may be, by bound, and what its device had before the one
                    // taken
        std::vector<std::pair<Ns, const Piece*>> steps;
        std::size_t next = 0;
        std::optional<Load> before;
    };
    Load with(Load load, int stage, const Piece& piece) const;
    bool leaves_room(const Descent& descent, int stage, const Piece& piece) const;

    Judge& judge();
    void check_time_for_plan(const Deadline& deadline);
    void refuse(const Error& error);
    void propose_what_fits(Deadline& deadline);
    StageSplit split_of(const Cuts& cuts) const;
    std::optional<Value> try_cuts(const Cuts& cuts, const Value& above);
    void try_cuts(const Cuts& cuts) { try_cuts(cuts, best_); }
    bool move_cut(Cuts& cuts, std::size_t which, int steps) const;
    int longest_move() const;
    struct Walk {
        Cuts cuts;
        Value value;
    };
    template <class ValueBelow>
    Walk descend(Walk walk, ValueBelow value_below) const;
    Cuts perturbed(Cuts cuts, int most);
    bool is_too_slow(const Descent& descent, Ns bound) const;
    Level next_level(const Descent& descent, Ns so_far);
    bool shares_devices() const { return found_.choice.stages > std::ssize(found_.choice.devices); }

    const SearchProblem& problem_;
    const StageSpace& space_;
    const SizedModel& model_;
    const Pieces* pieces_ = nullptr;
    std::unique_ptr<Judge> judge_;
    std::optional<PlanBound> plan_bound_;
    std::int64_t tasks_of_plan_ = 0;
    std::chrono::steady_clock::duration step_lasts_{0};
    bool open_ = false;
    bool too_long_ = false;
    std::optional<Error> refused_;
    bool beyond_ = false;
    Ns work_ = 0;  // least work of a micro-batch
    Ns expected_ = 0;
    bool limited_ = false;  // some device's memory is limited
    bool sharp_ = false;
    bool same_speed_ = false;  // all devices have the same speed
    Table bounds_;
    FoundPlan found_;
    Cuts cuts_;             // cuts of the plan found
    bool at_rest_ = false;  // no move of one of them helps
    Value best_ = kWorst;
    int tries_in_vain_ = 0;    // to find better cuts near them
    std::minstd_rand random_;  // the same in every search
    std::int64_t candidates_ = 0, spent_ = 0;
};

}  // namespace pw

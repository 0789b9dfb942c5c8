// One choice under search: its bounds, and the best split so far.
#pragma once

#include "search/deadline.h"
#include "search/makespan.h"
#include "search/plan_bound.h"

#include <memory>
#include <optional>

namespace pw {

// A micro-batch size worked out.
struct SizedModel {
    SizedModel(const SearchProblem& problem, const StageSpace& space, int samples);
    Profile profile;
    CostTable costs;
    const Pieces& pieces(bool split_backward) const { return split_backward ? split : fused; }
    Pieces fused, split;
};

class Trial {
public:
    Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice);

    // Works out the bounds. Throws Error when the schedule is not defined for the choice.
    void open();
    void close() { judge_.reset(); }  // gives the simulators back until they are needed again

    // Simulates the splits that the bounds propose.
    void propose();
    // Moves one cut at a time while that helps, for about `tasks` simulated tasks.
    void climb(std::int64_t tasks, Deadline& deadline);
    // Tries every split whose bound is below `limit`. True when none is left.
    bool prove(Ns limit, std::int64_t tasks, Deadline& deadline);

    // Step time that no split of this choice undercuts; kNever when none fits.
    Ns bound() const { return found_.lower_bound; }
    // Whatever the order of devices, of which there are more with speeds that add up to this.
    Ns bound_of_any_order(double speeds) const;
    const FoundPlan& found() const { return found_; }
    bool has_plan() const { return found_.split.stages() > 0; }
    bool fits() const { return found_.fits; }
    Ns step_time() const { return found_.step_time; }
    void fill_peaks();    // of the plan found
    Shortage shortage();  // of a plan that does not fit: the device that lacks most
    std::int64_t candidates() const { return candidates_; }
    std::int64_t spent() const { return spent_; }  // simulated tasks, and pieces looked at

    static constexpr Ns kNever = std::numeric_limits<Ns>::max() / 4;

private:
    using Cuts = std::vector<int>;               // from 0 to space.whole()
    using Table = std::vector<std::vector<Ns>>;  // [stage][cut]: least bottleneck of this and all later stages
    struct Value {
        Bytes shortage;
        Ns time;
        auto operator<=>(const Value&) const = default;
    };
    template <class Cost>
    Table least_bottleneck(Cost cost) const;
    template <class Cost>
    Cuts cuts_of(const Table& table, Cost cost) const;
    Ns bound_of(int stage, const Piece& piece) const;
    Bytes shortage_of(int stage, const Piece& piece) const;

    // A split under way: cuts so far, and what they have given to every device.
    struct Load {
        Ns head = -1, tail = 0;  // of its first stage; -1: it has none
        Ns until_last_backward = 0, whole = 0;
        Ns time() const { return std::max(head, Ns{0}) + std::max(whole, until_last_backward + tail); }
    };
    struct Descent {
        Cuts cuts = {0};
        std::vector<Load> loads;
        Ns limit;
        std::int64_t end;
        Deadline& deadline;
    };
    Load with(Load load, int stage, const Piece& piece) const;
    bool leaves_room(const Descent& descent, int stage, const Piece& piece) const;

    Judge& judge();
    bool try_cuts(const Cuts& cuts);  // true: better than the best so far
    bool move_cut(std::size_t which, int steps);
    bool descend(Descent& descent, Ns so_far);
    bool shares_devices() const { return found_.choice.stages > std::ssize(found_.choice.devices); }

    const SearchProblem& problem_;
    const StageSpace& space_;
    const SizedModel& model_;
    const Pieces* pieces_ = nullptr;
    std::unique_ptr<Judge> judge_;
    std::optional<PlanBound> plan_bound_;
    std::int64_t tasks_of_plan_ = 0;
    bool limited_ = false;     // some device's memory is
    bool same_speed_ = false;  // all devices have
    Table bounds_;
    FoundPlan found_;
    Cuts cuts_;  // of the plan found
    Value best_{std::numeric_limits<Bytes>::max(), kNever};
    std::int64_t candidates_ = 0, spent_ = 0;
};

}  // namespace pw

#include "search/plans/makespan.h"

#include "job/settings.h"
#include "search/plans/trial.h"
#include "workloads/error.h"
#include "workloads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <tuple>

namespace pw {

namespace {

// Choices are akin when they have the same schedule, sizes and stages.
bool are_akin(const PlanChoice& a, const PlanChoice& b) {
    return a.schedule == b.schedule && a.micro_batch_size == b.micro_batch_size && a.stages == b.stages &&
           a.recomputed == b.recomputed;
}

class Search {
public:
    Search(const SearchProblem& problem, const MakespanLimits& limits, const SearchProgress& progress)
        : problem_(problem),
          limits_(limits),
          progress_(progress),
          deadline_(limits.seconds, 1, limits.should_stop),
          hurried_(limits.seconds < std::numeric_limits<double>::infinity()),
          space_(problem.model.layers, limits.cuts) {
        if (hurried_)
            limits_.tasks = std::numeric_limits<std::int64_t>::max() / 8;
    }

    SearchResult run() {
        try {
            list();
            propose();
            improve();
        } catch (const std::bad_alloc&) {  // the plans found so far stay
            out_of_memory_ = true;
        }
        settle();
        if (out_of_memory_)
            sized_.clear();  // room for the answer
        return result();
    }

private:
    // The size of a batch is fixed, so that the results that a batch uses do not depend on the number of threads.
    static constexpr std::size_t kBatch = 8;
    static constexpr std::int64_t kFirstRound = 2'000'000;  // tasks
    static constexpr std::size_t kClimbers = 24, kLeastClimbers = 4;

    // A family is the choices of a schedule, sizes and stages of which not all are listed.
    struct Family {
        Choices::Partial partial;
        Ns bound = 0;  // of every way
    };

    void list() {
        const Choices choices = choices_of(problem_.config, space_.layers(), limits_.choices);
        notes_ = choices.notes;
        for (const Choices::Partial& partial : choices.partial)
            families_.push_back({partial});
        for (const PlanChoice& choice : choices.all)
            add(choice);
    }

    void add(const PlanChoice& choice) {
        const auto [sized, is_new] = sized_.try_emplace(choice.micro_batch_size);
        if (is_new)
            try {
                sized->second = std::make_unique<SizedModel>(problem_, space_, choice.micro_batch_size);
            } catch (const std::bad_alloc&) {  // nothing is known of this size
            }
        if (!sized->second) {
            ++unknown_;
            return;
        }
        trials_.push_back(std::make_unique<Trial>(problem_, space_, *sized->second, choice));
        left_out_.push_back(false);
    }

    // Returns the step time of the best plan that fits so far, or kNever when there is none.
    Ns best() const {
        Ns best = Trial::kNever;
        for (const auto& trial : trials_)
            if (trial->fits())
                best = std::min(best, trial->step_time());
        return best;
    }

    void show(const std::string& doing, std::size_t done, std::size_t all) const {
        if (!progress_)
            return;
        std::int64_t candidates = 0;
        for (const auto& trial : trials_)
            candidates += trial->candidates();
        const Ns so_far = best();
        const std::string found = so_far == Trial::kNever ? "nothing fits yet" : "best " + print_time(so_far);
        progress_(fmt::format("{} {}/{}: {}, {} plans simulated", doing, done, all, found, candidates));
    }

    // Returns false if there was not enough memory, or time for the choice's plan. The plans found so far stay.
    template <class Work>
    bool attempt(std::size_t index, Ns limit, Work work) {
        Trial& trial = *trials_[index];
        Deadline deadline = deadline_;
        deadline.leave(std::max(trial.step_lasts(), step_lasts_));
        bool enough = true;
        try {
            work(trial, index, limit, deadline);
            if (hurried_ && trial.is_open() && !deadline.passed())
                trial.finish();
        } catch (const TimeIsUp&) {
            enough = !trial.is_too_long();
        } catch (const std::bad_alloc&) {
            enough = false;
        }
        trial.close();
        if (deadline.passed())
            time_is_up_ = true;
        return enough;
    }

    // A choice that ran out of memory in parallel with others is tried again alone.
    template <class Work>
    void in_batches(const std::string& doing, const std::vector<std::size_t>& order, Work work) {
        for (std::size_t begin = 0; begin < order.size() && !deadline_.passed(); begin += kBatch) {
            const std::size_t count = std::min(kBatch, order.size() - begin);
            const Ns limit = best();
            std::vector<std::size_t> batch;
            std::copy_if(order.begin() + static_cast<std::ptrdiff_t>(begin),
                         order.begin() + static_cast<std::ptrdiff_t>(begin + count), std::back_inserter(batch),
                         [&](std::size_t index) { return !left_out_[index]; });
            for_each_index(batch.size(), limits_.threads,
                           [&](std::size_t i) { left_out_[batch[i]] = !attempt(batch[i], limit, work); });
            if (limits_.threads > 1)
                for (const std::size_t index : batch)
                    left_out_[index] = left_out_[index] && !attempt(index, limit, work);
            for (const std::size_t index : batch)
                if (trials_[index]->has_plan())  // else the time would be up before the first one
                    step_lasts_ = std::max(step_lasts_, trials_[index]->step_lasts());
            show(doing, begin + count, order.size());
        }
    }

    template <class Key>
    std::vector<std::size_t> ordered_by(Key key) const {
        std::vector<std::size_t> order(trials_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return key(*trials_[a]) < key(*trials_[b]); });
        return order;
    }

    // With a time limit, choices that cannot be the best are left out.
    void propose() {
        const auto propose_one = [this](Trial& trial, std::size_t, Ns limit, Deadline& deadline) {
            const auto is_hopeless = [&] { return hurried_ && limit < Trial::kNever && trial.bound() >= limit; };
            if (is_hopeless())
                return;
            trial.open(deadline);
            if (!trial.refused() && !is_hopeless())
                trial.propose(deadline);
        };
        in_batches("proposing", ordered_by([](const Trial& trial) { return trial.expected(); }), propose_one);
        if (!trials_.empty() && std::all_of(trials_.begin(), trials_.end(),
                                            [](const auto& trial) { return trial->refused().has_value(); })) {
            const Trial& first = *trials_.front();
            if (first.is_beyond())
                throw *first.refused();
            fail_at(problem_.config, "search", *first.refused(), "widen search.schedules or search.micro_batch_sizes");
        }
        in_batches("balancing", balanced(), propose_one);
    }

    // Returns a member that is open, if there is one.
    const Trial* member_of(const Family& family) const {
        const Trial* member = nullptr;
        for (const auto& trial : trials_)
            if (are_akin(trial->found().choice, family.partial.like) && !trial->refused() &&
                (member == nullptr || (trial->is_open() && !member->is_open())))
                member = trial.get();
        return member;
    }

    // Bounds the families with open members, and adds to those that share out devices a choice that shares them by
    // work.
    std::vector<std::size_t> balanced() {
        double speeds = 0;
        for (const DeviceConfig& device : problem_.config.cluster.devices)
            speeds += device.speed;
        std::vector<std::vector<int>> shares(families_.size());
        const Ns limit = best();
        for_each_index(families_.size(), limits_.threads, [&](std::size_t i) {
            Deadline deadline = deadline_;
            Family& family = families_[i];
            const Trial* member = member_of(family);
            if (member == nullptr)
                return;
            family.bound = member->bound_of_any_devices(speeds);
            if (!member->is_open() || !family.partial.shares || family.bound >= limit)
                return;
            try {
                shares[i] = member->shares_by_work(deadline);
                family.bound = std::max(family.bound, member->bound_of_any_shares(deadline));
            } catch (const TimeIsUp&) {
            } catch (const std::bad_alloc&) {
            }
        });
        std::vector<std::size_t> added;
        for (std::size_t i = 0; i < families_.size(); ++i)
            if (!shares[i].empty() && add_shared(families_[i].partial.like, shares[i]))
                added.push_back(trials_.size() - 1);
        return added;
    }

    // Returns false if the choice exists already.
    bool add_shared(PlanChoice choice, const std::vector<int>& replicas) {
        choice.replicas = replicas;
        choice.devices.resize(static_cast<std::size_t>(std::accumulate(replicas.begin(), replicas.end(), 0)));
        const bool is_new = std::none_of(trials_.begin(), trials_.end(),
                                         [&](const auto& trial) { return trial->found().choice == choice; });
        if (is_new)
            add(choice);
        return is_new;
    }

    // Climbs and proves in turn, each for half of a round, until nothing is open or the effort is spent. Every round is
    // twice as long as the previous one, with half as many climbing choices: the most promising ones.
    void improve() {
        proven_.assign(trials_.size(), false);
        std::int64_t left = limits_.tasks;
        std::size_t climbers = kClimbers;
        for (std::int64_t round = kFirstRound; prune() > 0 && left > 0 && !time_is_up_ && !deadline_.passed();
             round *= 2) {
            const std::int64_t before = spent(), tasks = left < 2 * round ? left : round;
            climb(tasks / 2, climbers);
            prove(tasks / 2);
            if (spent() == before)
                break;  // there is no memory for any open choice
            left -= std::max(tasks, spent() - before);
            climbers = std::max(kLeastClimbers, climbers / 2);
        }
    }

    void climb(std::int64_t tasks, std::size_t climbers) {
        const auto promise = [](const Trial& trial) {
            return std::pair(!trial.fits(), trial.step_time() / 2 + trial.bound() / 2);
        };
        std::vector<std::size_t> order = ordered_by(promise);
        const Ns limit = best();
        std::erase_if(order, [&](std::size_t index) {
            return proven_[index] || !trials_[index]->has_plan() || trials_[index]->bound() >= limit;
        });
        order.resize(std::min(order.size(), climbers));
        const std::int64_t each = tasks / static_cast<std::int64_t>(std::max<std::size_t>(order.size(), 1));
        in_batches("improving", order, [&](Trial& trial, std::size_t, Ns so_far, Deadline& deadline) {
            if (trial.bound() < so_far)
                trial.climb(each, deadline);
        });
    }

    // Raises the least bounds, as long as that raises the overall bound.
    void sharpen() {
        while (!deadline_.passed() && !time_is_up_) {
            Ns least = best();
            for (std::size_t index = 0; index < trials_.size(); ++index)
                if (!proven_[index] && trials_[index]->is_sharp())
                    least = std::min(least, trials_[index]->bound());
            std::vector<std::size_t> order = ordered_by([](const Trial& trial) { return trial.bound(); });
            std::erase_if(order, [&](std::size_t index) {
                return proven_[index] || left_out_[index] || trials_[index]->is_sharp() ||
                       trials_[index]->bound() >= least;
            });
            if (order.empty())
                return;
            order.resize(std::min(order.size(), kBatch));
            in_batches("bounding", order, [](Trial& trial, std::size_t, Ns limit, Deadline& deadline) {
                trial.open(deadline);
                if (!trial.refused())
                    trial.sharpen(limit, deadline);
            });
        }
    }

    // Proves in order of the bounds: the open choice with the least bound limits the gap.
    void prove(std::int64_t tasks) {
        sharpen();
        const std::size_t open = prune();
        if (open == 0)
            return;
        const std::int64_t each = tasks / static_cast<std::int64_t>(open);
        const auto order = ordered_by([](const Trial& trial) { return trial.bound(); });
        in_batches("proving", order, [&](Trial& trial, std::size_t index, Ns so_far, Deadline& deadline) {
            if (proven_[index])
                return;
            trial.open(deadline);
            proven_[index] = trial.bound() >= so_far || (trial.is_open() && trial.prove(so_far, each, deadline));
        });
    }

    // Closes the choices whose bound is not below the best; returns how many are left that can be proven.
    std::size_t prune() {
        const Ns limit = best();
        std::size_t open = 0;
        for (std::size_t index = 0; index < trials_.size(); ++index) {
            proven_[index] = proven_[index] || trials_[index]->bound() >= limit;
            open += !proven_[index] && !left_out_[index] && !trials_[index]->refused();
        }
        return open;
    }

    std::int64_t spent() const {
        std::int64_t spent = 0;
        for (const auto& trial : trials_)
            spent += trial->spent();
        return spent;
    }

    // A plan is left out if there is no memory to compute its own.
    void settle() {
        for_each_index(trials_.size(), limits_.threads, [&](std::size_t index) {
            try {
                trials_[index]->settle();
            } catch (const std::bad_alloc&) {
                left_out_[index] = true;
            }
            trials_[index]->close();
        });
    }

    SearchResult result() {
        SearchResult result;
        result.every_cut = space_.complete();
        result.every_choice = families_.empty();
        result.notes = notes_;
        result.lower_bound = lower_bound();
        const auto too_long = static_cast<int>(
            std::count_if(trials_.begin(), trials_.end(), [](const auto& trial) { return trial->is_too_long(); }));
        result.left_out = unknown_ + static_cast<int>(std::count(left_out_.begin(), left_out_.end(), true)) - too_long;
        result.choices = unknown_;
        note_beyond_limit(result.notes);
        for (std::size_t index = 0; index < trials_.size(); ++index) {
            const Trial& trial = *trials_[index];
            result.candidates += trial.candidates();
            result.choices += !trial.refused();
            result.fitting += trial.fits();
            if (!trial.has_plan() || trial.found().reserved.empty())
                continue;
            FoundPlan& plan = result.plans.emplace_back(trial.found());
            assert(!plan.fits || plan.lower_bound <= plan.step_time);
            if (is_closed(index) && best() < Trial::kNever)
                plan.lower_bound = std::max(plan.lower_bound, best());
            plan.lower_bound = std::min(plan.lower_bound, plan.step_time);  // a plan that does not fit may be faster
        }
        if (limits_.should_stop && limits_.should_stop())
            result.stop = SearchStop::Caller;
        else if (time_is_up_ || deadline_.passed() || too_long > 0)
            result.stop = SearchStop::Time;
        else if (out_of_memory_ || result.left_out > 0)
            result.stop = SearchStop::Memory;
        if (result.fitting == 0) {
            result.shortage = least_shortage();
            result.none_fits = result.lower_bound == Trial::kNever;
        }
        std::stable_sort(result.plans.begin(), result.plans.end(), [](const FoundPlan& a, const FoundPlan& b) {
            return std::tuple(!a.fits, a.step_time, a.most_reserved()) <
                   std::tuple(!b.fits, b.step_time, b.most_reserved());
        });
        return result;
    }

    // Returns whether no split of the choice is faster than the best plan.
    bool is_closed(std::size_t index) const { return index < proven_.size() && proven_[index] && space_.complete(); }

    // Choices are left out if some split could exceed the limits of integers, although others may be faster plans.
    void note_beyond_limit(std::vector<std::string>& notes) const {
        const auto is_beyond = [best = best()](const auto& trial) {
            return trial->is_beyond() && trial->bound() < best;
        };
        if (const auto first = std::find_if(trials_.begin(), trials_.end(), is_beyond); first != trials_.end())
            notes.push_back(fmt::format("{} of {} choices were not searched: {}",
                                        std::count_if(trials_.begin(), trials_.end(), is_beyond), trials_.size(),
                                        (*first)->refused()->fact()));
    }

    // Returns the lower bound, which is never above the best plan.
    Ns lower_bound() const {
        Ns least = unknown_ > 0 || out_of_memory_ ? 0 : best();
        for (std::size_t index = 0; index < trials_.size(); ++index)
            if (!is_closed(index))
                least = std::min(least, trials_[index]->bound());
        for (const Family& family : families_)
            least = std::min(least, std::max(family.bound, bound_of_other_orders(family)));
        return least;
    }

    // No bound depends on the network: if only the network distinguishes devices, the members' bounds hold for all
    // orders.
    Ns bound_of_other_orders(const Family& family) const {
        if (!family.partial.only_network)
            return 0;
        Ns least = Trial::kNever;
        for (const auto& trial : trials_)
            if (are_akin(trial->found().choice, family.partial.like))
                least = std::min(least, trial->bound());
        return least;
    }

    std::optional<Shortage> least_shortage() const {
        std::optional<Shortage> least;
        for (const auto& trial : trials_)
            if (const std::optional<Shortage>& lacks = trial->found().shortage;
                lacks && (!least || lacks->needs - lacks->has < least->needs - least->has))
                least = lacks;
        return least;
    }

    const SearchProblem& problem_;
    MakespanLimits limits_;
    const SearchProgress& progress_;
    Deadline deadline_;
    bool hurried_;                                       // a clock ends the search
    std::atomic<bool> time_is_up_ = false;               // for some choice
    std::chrono::steady_clock::duration step_lasts_{0};  // to simulate the largest plan so far
    StageSpace space_;
    std::vector<Family> families_;
    std::vector<std::string> notes_;
    std::map<int, std::unique_ptr<SizedModel>> sized_;  // by micro-batch size; none: there was no memory for it
    std::vector<std::unique_ptr<Trial>> trials_;
    std::vector<char> left_out_, proven_;  // by trial
    int unknown_ = 0;                      // choices of sizes for which there was no memory
    bool out_of_memory_ = false;           // outside the choices
};

}  // namespace

Bytes FoundPlan::most_reserved() const {
    return reserved.empty() ? 0 : *std::max_element(reserved.begin(), reserved.end());
}

const FoundPlan* SearchResult::best() const { return plans.empty() || !plans.front().fits ? nullptr : &plans.front(); }

Config config_of(const SearchProblem& problem, const FoundPlan& plan) {
    Config config = config_of(problem.config, plan.choice);
    set_split(config.pipeline, problem.model.layers, plan.split);
    config.search = {};
    config.search.profile_batch = problem.config.search.profile_batch;
    config.search.mini_batch = problem.config.search.mini_batch;
    config.sweep.clear();
    config.yaml = print_config(config);
    return config;
}

double gap_of(Ns time, Ns lower_bound) {
    return time > 0 ? static_cast<double>(time - lower_bound) / static_cast<double>(time) : 0;
}

double SearchResult::gap() const { return best() == nullptr ? 0 : gap_of(best()->step_time, lower_bound); }

SearchResult search_plans(const SearchProblem& problem, const MakespanLimits& limits, const SearchProgress& progress) {
    return Search(problem, limits, progress).run();
}

}  // namespace pw

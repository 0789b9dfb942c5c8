#include "search/makespan.h"

#include "search/trial.h"
#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <system_error>
#include <thread>

namespace pw {

namespace {

// Threads share the indices below `count`; what is done for one must not depend on another.
template <class Work>
void for_each_index(std::size_t count, int threads, Work work) {
    std::atomic<std::size_t> next = 0;
    FirstFailure failure;
    const auto act = [&] {
        for (std::size_t index = next++; index < count; index = next++)
            work(index);
    };
    const auto serve = [&] { failure.guard(act, [&] { next = count; }); };
    std::vector<std::thread> helpers;
    try {
        for (int thread = 1; thread < threads && static_cast<std::size_t>(thread) < count; ++thread)
            helpers.emplace_back(serve);
    } catch (const std::system_error&) {  // fewer do the same
    }
    serve();
    for (std::thread& helper : helpers)
        helper.join();
    failure.rethrow();
}

class Search {
public:
    Search(const SearchProblem& problem, const MakespanLimits& limits, const SearchProgress& progress)
        : problem_(problem),
          limits_(limits),
          progress_(progress),
          deadline_(limits.seconds, 1),
          space_(problem.model.layers, limits.cuts) {
        if (limits.seconds < std::numeric_limits<double>::infinity())
            limits_.tasks = std::numeric_limits<std::int64_t>::max() / 8;
    }

    SearchResult run() {
        open();
        propose();
        climb();
        prove();
        return result();
    }

private:
    // Fixed, so that what a batch knows of the others does not depend on the number of threads.
    static constexpr std::size_t kBatch = 8;

    void open() {
        const Choices choices = choices_of(problem_.config, space_.layers());
        every_order_ = choices.complete;
        for (const PlanChoice& choice : choices.all)
            if (!sized_.contains(choice.micro_batch_size))
                sized_.emplace(choice.micro_batch_size,
                               std::make_unique<SizedModel>(problem_, space_, choice.micro_batch_size));
        std::vector<std::unique_ptr<Trial>> trials(choices.all.size());
        std::vector<std::string> refusals(trials.size());
        for_each_index(trials.size(), limits_.threads, [&](std::size_t i) {
            const PlanChoice& choice = choices.all[i];
            auto trial = std::make_unique<Trial>(problem_, space_, *sized_.at(choice.micro_batch_size), choice);
            try {
                trial->open();
                trial->close();
                trials[i] = std::move(trial);
            } catch (const Error& error) {  // the schedule is not defined for this choice
                refusals[i] = error.what();
            }
        });
        for (std::unique_ptr<Trial>& trial : trials)
            if (trial)
                trials_.push_back(std::move(trial));
        if (trials_.empty())
            problem_.config.fail_at("search", refusals.front(), "widen search.schedules or search.micro_batch_sizes");
    }

    // The best plan that fits so far; kNever: none.
    Ns best() const {
        Ns best = Trial::kNever;
        for (const auto& trial : trials_)
            if (trial->fits())
                best = std::min(best, trial->step_time());
        return best;
    }

    bool any_plan() const {
        return std::any_of(trials_.begin(), trials_.end(), [](const auto& trial) { return trial->has_plan(); });
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

    template <class Work>
    void in_batches(const std::string& doing, const std::vector<std::size_t>& order, Work work) {
        for (std::size_t begin = 0; begin < order.size(); begin += kBatch) {
            if (deadline_.passed() && any_plan())
                return;
            const std::size_t count = std::min(kBatch, order.size() - begin);
            const Ns limit = best();
            for_each_index(count, limits_.threads, [&](std::size_t i) {
                Trial& trial = *trials_[order[begin + i]];
                Deadline deadline = deadline_;
                work(trial, order[begin + i], limit, deadline);
                trial.close();
            });
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

    void propose() {
        in_batches("proposing", ordered_by([](const Trial& trial) { return trial.bound(); }),
                   [](Trial& trial, std::size_t, Ns, Deadline&) { trial.propose(); });
    }

    // Half of what may be simulated; the most promising choices first.
    void climb() {
        const auto promise = [](const Trial& trial) { return std::pair(!trial.fits(), trial.step_time()); };
        const std::vector<std::size_t> order = ordered_by(promise);
        const std::int64_t each =
            limits_.tasks / 2 / static_cast<std::int64_t>(std::clamp<std::size_t>(order.size(), 1, 24));
        in_batches("improving", order, [&](Trial& trial, std::size_t, Ns limit, Deadline& deadline) {
            if (trial.bound() < limit && trial.has_plan())
                trial.climb(each, deadline);
        });
    }

    // The other half, in order of the bounds: what remains open with the least bound limits the gap. What some choices
    // leave over, the others get in another round.
    void prove() {
        proven_.assign(trials_.size(), false);
        std::int64_t left = limits_.tasks / 2;
        for (std::size_t open = prune(); open > 0 && left > limits_.tasks / 20 && !deadline_.passed(); open = prune()) {
            const std::int64_t each = left / static_cast<std::int64_t>(open), before = spent();
            const auto order = ordered_by([](const Trial& trial) { return trial.bound(); });
            in_batches("proving", order, [&](Trial& trial, std::size_t index, Ns so_far, Deadline& deadline) {
                if (!proven_[index])
                    proven_[index] = trial.bound() >= so_far || trial.prove(so_far, each, deadline);
            });
            left -= spent() - before;
        }
    }

    // Closes the choices whose bound is not below the best; returns how many are left.
    std::size_t prune() {
        const Ns limit = best();
        for (std::size_t index = 0; index < trials_.size(); ++index)
            proven_[index] = proven_[index] || trials_[index]->bound() >= limit;
        return static_cast<std::size_t>(std::count(proven_.begin(), proven_.end(), false));
    }

    std::int64_t spent() const {
        std::int64_t spent = 0;
        for (const auto& trial : trials_)
            spent += trial->spent();
        return spent;
    }

    SearchResult result() {
        SearchResult result;
        result.every_cut = space_.complete();
        result.choices = static_cast<int>(trials_.size());
        const Ns found = best();
        result.lower_bound = found;
        double speeds = 0;
        for (const DeviceConfig& device : problem_.config.cluster.devices)
            speeds += device.speed;
        for (std::size_t index = 0; index < trials_.size(); ++index) {
            Trial& trial = *trials_[index];
            result.candidates += trial.candidates();
            if (!proven_[index] || !space_.complete())
                result.lower_bound = std::min(result.lower_bound, trial.bound());
            if (!every_order_)
                result.lower_bound = std::min(result.lower_bound, trial.bound_of_any_order(speeds));
        }
        if (found == Trial::kNever) {
            result.shortage = least_shortage();
            result.none_fits = result.lower_bound == Trial::kNever;
        }
        for_each_index(trials_.size(), limits_.threads, [&](std::size_t i) {
            trials_[i]->fill_peaks();
            trials_[i]->close();
        });
        for (const auto& trial : trials_)
            if (trial->has_plan())
                result.plans.push_back(trial->found());
        std::stable_sort(result.plans.begin(), result.plans.end(), [](const FoundPlan& a, const FoundPlan& b) {
            return std::tuple(!a.fits, a.step_time, a.peak()) < std::tuple(!b.fits, b.step_time, b.peak());
        });
        return result;
    }

    std::optional<Shortage> least_shortage() {
        std::optional<Shortage> least;
        for (const auto& trial : trials_) {
            if (!trial->has_plan())
                continue;
            const Shortage shortage = trial->shortage();
            if (!least || shortage.needs - shortage.has < least->needs - least->has)
                least = shortage;
        }
        return least;
    }

    const SearchProblem& problem_;
    MakespanLimits limits_;
    const SearchProgress& progress_;
    Deadline deadline_;
    StageSpace space_;
    bool every_order_ = true;
    std::map<int, std::unique_ptr<SizedModel>> sized_;  // by micro-batch size
    std::vector<std::unique_ptr<Trial>> trials_;
    std::vector<char> proven_;  // by trial
};

}  // namespace

Bytes FoundPlan::peak() const { return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end()); }

const FoundPlan* SearchResult::best() const { return plans.empty() || !plans.front().fits ? nullptr : &plans.front(); }

double gap_of(Ns time, Ns lower_bound) {
    return time > 0 ? static_cast<double>(time - lower_bound) / static_cast<double>(time) : 0;
}

double SearchResult::gap() const { return best() == nullptr ? 0 : gap_of(best()->step_time, lower_bound); }

SearchResult search_plans(const SearchProblem& problem, const MakespanLimits& limits, const SearchProgress& progress) {
    return Search(problem, limits, progress).run();
}

}  // namespace pw

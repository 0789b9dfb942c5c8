#include "search/clusters/cluster_search.h"

#include "job/build.h"
#include "job/job.h"
#include "job/transformer_job.h"
#include "schedules/memory/buffers.h"
#include "search/clusters/cluster_bounds.h"
#include "search/deadline.h"
#include "search/plans/plan_choice.h"
#include "sim/simulate.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/threads.h"
#include "workloads/transformers/transformer_model.h"
#include "workloads/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// The size of a batch is fixed, so that the plans that are simulated do not depend on the number of threads.
constexpr std::size_t kPlansAtOnce = 8;
// Of the time, if it is limited: the rest is for plans.
constexpr double kShareOfBounds = 0.6;
constexpr Ns kNoPlan = std::numeric_limits<Ns>::max();

// Schedule, devices, stages and micro-batches: plans with the same ones have the same orders.
using OrderKey = std::tuple<std::string, int, int, int>;

OrderKey order_key(const ClusterChoice& choice, std::int64_t samples) {
    const std::int64_t each = std::int64_t{choice.degrees.data} * choice.micro_batch_size;
    return {choice.schedule, choice.degrees.pipeline, choice.stages(), static_cast<int>(samples / each)};
}

// Whether two choices have the same costs of layers.
bool same_layers(const ClusterChoice& a, const ClusterChoice& b) {
    ClusterChoice like = a;
    like.schedule = b.schedule;
    like.chunks = b.chunks;
    return like == b;
}

using DegreesKey = std::array<int, 4>;

DegreesKey degrees_key(const ClusterChoice& choice) {
    const Parallel& own = choice.degrees;
    return {own.tensor, own.pipeline, own.context, own.expert};
}

// A step through all numbers below `count` that soon comes near each of them: it is prime, and no divisor of them.
std::size_t stride_of(std::size_t count) {
    constexpr std::size_t kPrimes[] = {7919, 7907};
    return count % kPrimes[0] == 0 ? kPrimes[1] : kPrimes[0];
}

struct ChoiceBounds {
    bool is_defined = false;  // false: the schedule refuses it
    bool fits = false;
    Ns step_time = 0;
    Shortage shortage;  // of the device that lacks most
};

// The shortage of the device that lacks most, or has least left.
Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices) {
    Shortage worst{0, needed.front(), devices.front().memory};
    for (std::size_t device = 1; device < needed.size(); ++device)
        if (needed[device] - devices[device].memory > worst.needs - worst.has)
            worst = {static_cast<int>(device), needed[device], devices[device].memory};
    return worst;
}

ClusterPlan simulated(const Config& config, const ClusterChoice& choice) {
    Notices notices;  // the command says once what there is to say about the best plan
    Job job = make_job(config_of(config, choice), notices);
    TransferMode mode = job.mode;
    mode.sent_copies = keeps_copies(job.costs, mode.early_receive());
    const auto plan = std::make_shared<const Plan>(std::move(job.plan));
    Simulator simulator(plan, job.proof, std::make_shared<const VersionTable>(std::move(job.versions)), mode);
    const Metrics metrics = simulator.metrics(job.costs, without_hash(*plan));
    ClusterPlan found{choice, metrics.step_time, 0, metrics.bubble_rate, {}, false};
    for (const DeviceMetrics& device : metrics.devices) {
        found.exposed = std::max(found.exposed, device.exposed_communication);
        found.reserved.push_back(device.reserved_memory.value_or(device.peak_memory));
    }
    const Shortage worst = worst_of(found.reserved, job.config.cluster.devices);
    found.fits = worst.needs <= worst.has;
    return found;
}

class ClusterSearcher {
public:
    ClusterSearcher(const Config& config, const ClusterLimits& limits, const SearchProgress& progress)
        : config_(config),
          limits_(limits),
          progress_(progress),
          deadline_(limits.seconds, 1, limits.should_stop),
          end_of_bounds_(limits.seconds * kShareOfBounds, 1, limits.should_stop),
          choices_(cluster_choices(config)),
          bounds_(choices_.size()) {}

    ClusterResult run() {
        simulate_recipe();
        make_order_facts();
        make_bounds();
        simulate_best_first();
        if (result_.fitting == 0)
            find_smallest();
        finish();
        return std::move(result_);
    }

private:
    void show(const std::string& doing, std::size_t done, std::size_t all) const {
        if (!progress_)
            return;
        const Ns best = limit_of(1);
        progress_(fmt::format("{} {}/{}: {}", doing, done, all,
                              best == kNoPlan ? "nothing fits yet" : "best " + print_time(best)));
    }

    // Once true, the search ends without what is left to do.
    bool is_over() {
        const std::lock_guard lock(mutex_);
        is_over_ = is_over_ || deadline_.passed();
        return is_over_;
    }

    bool bounds_are_over() {
        const std::lock_guard lock(mutex_);
        if (end_of_bounds_.passed())
            result_.every_bound = false;
        return !result_.every_bound;
    }

    // Works on all numbers below `count`, and reports progress, until the time for bounds is up.
    template <class Work>
    void on_all(const std::string& doing, std::size_t count, Work work) {
        std::size_t done = 0;
        for_each_index(count, limits_.threads, [&](std::size_t index) {
            if (bounds_are_over())
                return;
            work(index * stride_of(count) % count);
            const std::lock_guard lock(mutex_);
            if (++done % 64 == 0)
                show(doing, done, count);
        });
    }

    void simulate_recipe() {
        const Recipe* recipe =
            nearest_recipe(*config_.workload.transformer, config_.cluster.device, config_.training.precision,
                           static_cast<int>(config_.parallel.devices.size()));
        const std::optional<ClusterChoice> choice = recipe ? choice_of(*recipe, config_) : std::nullopt;
        if (!choice)
            return;
        try {
            result_.vendor = simulated(config_, *choice);
            result_.recipe = recipe;
        } catch (const Error&) {  // its schedule refuses the number of micro-batches
            return;
        }
        if (std::find(choices_.begin(), choices_.end(), *choice) != choices_.end())
            add(*result_.vendor);
    }

    void make_order_facts() {
        std::vector<OrderKey> keys;
        for (const ClusterChoice& choice : choices_)
            if (const OrderKey key = order_key(choice, config_.search.mini_batch); facts_.emplace(key, nullptr).second)
                keys.push_back(key);
        on_all("orders", keys.size(), [&](std::size_t index) {
            const auto& [schedule, devices, stages, micro_batches] = keys[index];
            Shape shape;
            shape.devices = devices;
            shape.stages = stages;
            shape.microbatches = micro_batches;
            const ScheduleOptions options{config_.pipeline.drain, config_.pipeline.group};
            auto facts = order_facts(searched_schedule(config_, schedule), std::move(shape), options);
            facts_.find(keys[index])->second = std::move(facts);
        });
    }

    // Choices with the same degrees and sizes share the costs of their layers.
    void make_bounds() {
        std::vector<std::size_t> begins;
        for (std::size_t index = 0; index < choices_.size(); ++index)
            if (index == 0 || !same_layers(choices_[index], choices_[index - 1]))
                begins.push_back(index);
        begins.push_back(choices_.size());
        on_all("bounds", begins.size() - 1, [&](std::size_t group) { bound_group(begins[group], begins[group + 1]); });
        for (const ChoiceBounds& bounds : bounds_) {
            result_.choices += bounds.is_defined ? 1 : 0;
            result_.too_large += bounds.is_defined && !bounds.fits ? 1 : 0;
        }
    }

    void bound_group(std::size_t begin, std::size_t end) {
        std::optional<ProfiledModel> layers;
        for (std::size_t index = begin; index < end; ++index) {
            const ClusterChoice& choice = choices_[index];
            const OrderFacts* facts = facts_.find(order_key(choice, config_.search.mini_batch))->second.get();
            if (facts == nullptr)
                continue;
            const Config chosen = config_of(config_, choice);
            if (!layers)
                layers = transformer_model(transformer_job_of(chosen), choice.micro_batch_size);
            const Model& model = layers->model;
            const Profile profile = in_cluster(layers->profile, chosen);
            const StageSplit split = make_split(chosen, model, profile);
            const Costs costs = complete_costs(costs_of(model, split, profile, choice.micro_batch_size), chosen,
                                               cluster_of(chosen, profile), model.layers, split, facts->shape);
            ChoiceBounds& bounds = bounds_[index];
            bounds.is_defined = true;
            bounds.step_time = least_step_time(*facts, costs);
            bounds.shortage = worst_of(least_memory(*facts, costs), chosen.cluster.devices);
            bounds.fits = bounds.shortage.needs <= bounds.shortage.has;
        }
    }

    // Returns the best step time of the degrees that are `place`-th among those with a plan that fits.
    Ns limit_of(std::size_t place) const {
        std::vector<Ns> times;
        for (const auto& [degrees, time] : best_of_)
            times.push_back(time);
        std::sort(times.begin(), times.end());
        return times.size() < place ? kNoPlan : times[place - 1];
    }

    void add(ClusterPlan plan) {
        if (plan.fits) {
            Ns& best = best_of_.try_emplace(degrees_key(plan.choice), kNoPlan).first->second;
            best = std::min(best, plan.step_time);
            ++result_.fitting;
        }
        result_.plans.push_back(std::move(plan));
    }

    bool is_known(const ClusterChoice& choice) const { return result_.vendor && result_.vendor->choice == choice; }

    // Simulates choices at once. One that runs out of memory is tried again alone.
    void simulate(const std::vector<std::size_t>& batch) {
        std::vector<std::optional<ClusterPlan>> found(batch.size());
        const auto attempt = [&](std::size_t i) {
            try {
                found[i] = simulated(config_, choices_[batch[i]]);
            } catch (const std::bad_alloc&) {
                return false;
            } catch (const Error&) {  // the plan deadlocks with the transfers of the config
            }
            return true;
        };
        std::vector<char> done(batch.size(), 0);
        for_each_index(batch.size(), limits_.threads, [&](std::size_t i) { done[i] = attempt(i) ? 1 : 0; });
        for (std::size_t i = 0; i < batch.size(); ++i) {
            if (done[i] == 0 && (limits_.threads == 1 || !attempt(i)))
                ++result_.left_out;
            else if (found[i])
                add(std::move(*found[i]));
            else
                --result_.choices;
        }
    }

    void simulate_best_first() {
        std::vector<std::size_t> order;
        for (std::size_t index = 0; index < choices_.size(); ++index)
            if (bounds_[index].fits && !is_known(choices_[index]))
                order.push_back(index);
        const auto by_bound = [&](std::size_t a, std::size_t b) {
            return std::pair(bounds_[a].step_time, a) < std::pair(bounds_[b].step_time, b);
        };
        std::sort(order.begin(), order.end(), by_bound);
        std::size_t next = 0;
        while (next < order.size() && bounds_[order[next]].step_time < limit_of(limits_.exact) && !is_over()) {
            std::vector<std::size_t> batch;
            for (; next < order.size() && batch.size() < kPlansAtOnce; ++next)
                batch.push_back(order[next]);
            simulate(batch);
            show("plans", next, order.size());
        }
        result_.too_slow = static_cast<int>(order.size() - next);
        const Ns least = next < order.size() ? bounds_[order[next]].step_time : kNoPlan;
        result_.lower_bound = result_.every_bound ? std::min(limit_of(1), least) : 0;
    }

    // Without a plan that fits: what the smallest ones need.
    void find_smallest() {
        std::vector<std::size_t> order;
        for (std::size_t index = 0; index < choices_.size(); ++index)
            if (bounds_[index].is_defined)
                order.push_back(index);
        const auto lacks = [&](std::size_t index) {
            const Shortage& shortage = bounds_[index].shortage;
            return std::pair(shortage.needs - shortage.has, index);
        };
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lacks(a) < lacks(b); });
        order.resize(std::min(order.size(), kPlansAtOnce));
        if (!is_over_)
            simulate(order);
        for (const ClusterPlan& plan : result_.plans) {
            const std::vector<DeviceConfig> devices = config_of(config_, plan.choice).cluster.devices;
            const Shortage worst = worst_of(plan.reserved, devices);
            if (!result_.shortage || worst.needs - worst.has < result_.shortage->needs - result_.shortage->has) {
                result_.shortage = worst;
                result_.smallest = plan.choice;
            }
        }
    }

    void finish() {
        std::stable_sort(result_.plans.begin(), result_.plans.end(), [](const ClusterPlan& a, const ClusterPlan& b) {
            return std::tuple(!a.fits, a.step_time, a.most_reserved()) <
                   std::tuple(!b.fits, b.step_time, b.most_reserved());
        });
        if (is_over_ || !result_.every_bound)
            result_.stop = limits_.should_stop && limits_.should_stop() ? SearchStop::Caller : SearchStop::Time;
        else if (result_.plans.empty() && result_.left_out > 0)
            result_.stop = SearchStop::Memory;
    }

    const Config& config_;
    const ClusterLimits& limits_;
    const SearchProgress& progress_;
    std::mutex mutex_;
    Deadline deadline_, end_of_bounds_;
    bool is_over_ = false;
    const std::vector<ClusterChoice> choices_;
    std::vector<ChoiceBounds> bounds_;  // by choice
    std::map<OrderKey, std::unique_ptr<const OrderFacts>> facts_;
    std::map<DegreesKey, Ns> best_of_;  // step times of plans that fit
    ClusterResult result_;
};

}  // namespace

Bytes ClusterPlan::most_reserved() const { return *std::max_element(reserved.begin(), reserved.end()); }

const ClusterPlan* ClusterResult::best() const {
    return plans.empty() || !plans.front().fits ? nullptr : &plans.front();
}

std::vector<const ClusterPlan*> ClusterResult::best_by_degrees(std::size_t most) const {
    std::vector<const ClusterPlan*> found;
    std::set<DegreesKey> seen;
    for (const ClusterPlan& plan : plans)
        if (found.size() < most && plan.fits && seen.insert(degrees_key(plan.choice)).second)
            found.push_back(&plan);
    return found;
}

ClusterResult search_cluster(const Config& config, const ClusterLimits& limits, const SearchProgress& progress) {
    return ClusterSearcher(config, limits, progress).run();
}

}  // namespace pw

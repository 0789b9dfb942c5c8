#include "exec/measuring/calibrate.h"

#include "exec/measuring/turns.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/traffic.h"
#include "workloads/error.h"
#include "workloads/median.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

constexpr double kLeftOut = 0.25;          // of the steps, at either end: the rest gives their interquartile mean
constexpr double kLeastVariance = 0.02;    // of the load, for a line through the times over it
constexpr double kMostByNeighbours = 1.0;  // relative to the time alone

struct Kind {
    int stage;
    Op op;
    bool last_microbatch;
    bool operator==(const Kind&) const = default;
    auto operator<=>(const Kind&) const = default;
};

struct Observation {
    double time;
    double load;  // the part of the time in which other devices computed, as a mean over these devices
};

using Observations = std::vector<Observation>;

double mean_of(const Observations& samples, double Observation::*part) {
    double sum = 0;
    for (const Observation& sample : samples)
        sum += sample.*part;
    return sum / static_cast<double>(samples.size());
}

// The additional time of a task while its neighbours compute: the slope of straight lines through the times over
// the load. There is a line for tasks that add to gradients, and a line for tasks that write the first gradients,
// if there are any.
double slope_of(const Observations& later, const Observations& first) {
    double together = 0, variance = 0, time = 0;
    for (const Observations* samples : {&later, &first}) {
        if (samples->empty())
            continue;
        const double mean = mean_of(*samples, &Observation::time), load = mean_of(*samples, &Observation::load);
        for (const Observation& sample : *samples) {
            together += (sample.load - load) * (sample.time - mean);
            variance += (sample.load - load) * (sample.load - load);
            time += sample.time;
        }
    }
    const auto count = static_cast<double>(later.size() + first.size());
    if (variance < kLeastVariance * count)
        return 0;
    return std::clamp(together / variance, -time / count / 2, kMostByNeighbours * time / count);
}

double alone_of(const Observations& samples, double slope) {
    return mean_of(samples, &Observation::time) - slope * mean_of(samples, &Observation::load);
}

// A step of a probe: the events of every node.
class Step {
public:
    Step(const Plan& plan, const Trace& trace, int step) {
        for (const TraceEvent& event : trace.events)
            if (event.step == step)
                events_.push_back(&event);  // by device and in list order, and so by node
        computing_.resize(plan.order.size());
        for (const TraceEvent* event : events_)
            if (!moves_data(event->task.op))
                computing_[event->device].push_back(event);
    }

    Ns makespan() const {
        Ns first = std::numeric_limits<Ns>::max(), last = 0;
        for (const auto& device : computing_)
            for (const TraceEvent* event : device) {
                first = std::min(first, event->start);
                last = std::max(last, event->end);
            }
        return last - first;
    }
    const std::vector<const TraceEvent*>& events() const { return events_; }

    double load_of(const TraceEvent& own) const {
        double time = 0;
        for (std::size_t device = 0; device < computing_.size(); ++device)
            if (static_cast<int>(device) != own.device)
                for (const TraceEvent* other : computing_[device])
                    time += static_cast<double>(
                        std::max<Ns>(0, std::min(own.end, other->end) - std::max(own.start, other->start)));
        const auto most = static_cast<double>(own.end - own.start) * static_cast<double>(computing_.size() - 1);
        return most > 0 ? time / most : 0;
    }

private:
    std::vector<const TraceEvent*> events_;                  // by node
    std::vector<std::vector<const TraceEvent*>> computing_;  // [device], in list order
};

class Collector {
public:
    explicit Collector(const Job& job)
        : job_(job), messages_are_timed_(is_on_ranks() || !job.costs.cluster->routes.capacities().empty()) {}

    void add(const ProbeTrace& probe) {
        const PlanGraph graph(probe.job->plan);
        const Traffic traffic(probe.job->plan.shape, graph.index(), job_.costs);
        std::vector<Step> steps;
        for (const Trace& trace : probe.traces)
            for (int step = 0; step < steps_of(*probe.job); ++step)
                if (probe.job->plan.asynchronous || !begins_turn(step, steps_of(*probe.job), probe.turns))
                    if (Step run(probe.job->plan, trace, step); !run.events().empty())
                        steps.push_back(std::move(run));
        std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.makespan() < b.makespan(); });
        const auto out = static_cast<std::size_t>(kLeftOut * static_cast<double>(steps.size()));
        for (std::size_t k = out; k + out < steps.size(); ++k) {
            add_times(steps[k], graph, *probe.job);
            add_gaps(steps[k], graph, traffic);
        }
    }

    ProbedCosts calibration() {
        later_.merge(predicting_);  // kinds without further times
        ProbedCosts calibration{job_.costs, {}};
        Costs& costs = calibration.costs;
        ClusterEdit(costs)->kind.clear();
        costs.of_makes.clear();
        costs.interpolated = false;
        costs.busy = costs.stage;
        costs.neighbours = 0;  // the probes have as many devices as the plan
        if (!costs.last.empty())
            costs.busy_last = costs.last;
        require_all_kinds();
        for (const auto& [kind, samples] : later_) {
            write(kind, samples, costs);
            calibration.tasks.push_back(times_of(kind, samples));
        }
        if (!own_gaps_.empty())
            costs.dispatch = std::llround(mean_median(own_gaps_));
        if (!job_.setup.cluster.link_given || emulates_link())  // otherwise the prediction is for another link
            set_links(costs);
        return calibration;
    }

private:
    void set_links(Costs& costs) const {
        ClusterEdit cluster(costs);
        if (!sends_messages()) {
            cluster->link = {far_gaps_.empty() ? cluster->link.latency : 0};
            cluster->between_hosts.reset();
        }
        const Ns longer = far_gaps_.empty() ? 0 : std::llround(mean_median(far_gaps_)) - costs.dispatch;
        cluster->link.latency = std::max<Ns>(0, cluster->link.latency + longer);
        if (cluster->between_hosts)
            cluster->between_hosts->latency = std::max<Ns>(0, cluster->between_hosts->latency + longer);
    }

    bool emulates_link() const { return job_.setup.run.transport == RunConfig::Transport::Link; }
    bool is_on_ranks() const { return job_.setup.run.transport == RunConfig::Transport::Mpi; }
    bool sends_messages() const { return emulates_link() || is_on_ranks(); }

    bool is_last(const Task& task, const Plan& plan) const {
        return is_compute(task.op) && plan.shape.is_in_last_of_mini_batch(task.microbatch) && !job_.costs.last.empty();
    }

    // A prediction must not mix calibrated and uncalibrated times.
    void require_all_kinds() const {
        for (const std::vector<Task>& order : job_.plan.order)
            for (const Task& task : order)
                if (!moves_data(task.op) && !later_.contains({task.stage, task.op, is_last(task, job_.plan)}))
                    fail_with(
                        ExitCode::RunFailed,
                        "the probes of the plan have no time of {}: the prediction cannot be calibrated during the "
                        "run\n  help: compare with a profile: cluster.profile, and without --interleave",
                        print(task));
    }

    void add_times(const Step& step, const PlanGraph& graph, const Job& probe) {
        const Plan& plan = probe.plan;
        std::map<std::pair<int, int>, bool> begun;  // device and stage: whether there are gradients to add to
        std::set<std::tuple<int, int, Op>> warm;    // device, stage and operation: run before
        for (int node = 0; node < graph.size(); ++node) {
            const TraceEvent& event = *step.events()[node];
            const Task& task = event.task;
            if (moves_data(task.op))
                continue;
            const bool computes = is_compute(task.op);
            const Kind kind{task.stage, task.op, is_last(task, plan)};
            bool& has_gradients = begun[{event.device, task.stage}];
            const bool first = makes_weight_gradient(task.op) && !std::exchange(has_gradients, true);
            if (task.op == Op::Update)
                has_gradients = false;
            // An asynchronous plan is a single step: its first tasks find cold caches and pages, as a turn's first step
            // does.
            if (plan.asynchronous && warm.emplace(event.device, task.stage, task.op).second)
                continue;
            const Ns start = computes ? event.start : ready_at(step.events(), graph, node);
            auto& samples = predicts(task, probe.versions, plan) ? predicting_ : first ? first_ : later_;
            samples[kind].push_back({static_cast<double>(event.end - start), step.load_of(event)});
        }
    }

    // S and U do a part of their work before they begin, while they wait in their barrier: it begins when all their
    // inputs are ready.
    static Ns ready_at(const std::vector<const TraceEvent*>& events, const PlanGraph& graph, int node) {
        Ns ready = 0;
        for (const int input : graph.inputs(node))
            ready = std::max(ready, events[input]->end);
        for (int before = node - 1; before >= 0 && graph.device_of(before) == graph.device_of(node); --before)
            if (!moves_data(graph.task(before).op)) {
                ready = std::max(ready, events[before]->end);
                break;
            }
        return std::min(ready, events[node]->start);
    }

    // Adds the gaps between tasks: after the device's own last task, or after the task on another device that has
    // made the input.
    void add_gaps(const Step& step, const PlanGraph& graph, const Traffic& traffic) {
        const std::vector<const TraceEvent*>& events = step.events();
        Ns own = -1;
        for (int node = 0; node < graph.size(); ++node) {
            const TraceEvent& event = *events[node];
            if (graph.position_of(node) == 0)
                own = -1;
            if (moves_data(event.task.op))
                continue;
            if (own >= 0 && is_compute(event.task.op))
                add_gap(event, own, arrival(events, graph, traffic, node));
            own = event.end;
        }
    }

    // Returns the earliest time at which all inputs from other devices can have arrived, or -1 if there are none.
    Ns arrival(const std::vector<const TraceEvent*>& events, const PlanGraph& graph, const Traffic& traffic,
               int node) const {
        Ns last = -1;
        for (const int recv : graph.inputs(node))
            if (is_recv(graph.task(recv).op))
                for (const int maker : graph.inputs(graph.inputs(recv).front())) {
                    const Ns way = emulates_link()
                                       ? job_.costs.cluster->link.latency +
                                             occupation_of(traffic.bytes(graph.task(recv)), job_.costs.cluster->link)
                                       : 0;
                    last = std::max(last, messages_are_timed_ ? events[recv]->end : events[maker]->end + way);
                }
        return last;
    }

    void add_gap(const TraceEvent& event, Ns own, Ns far) {
        (far > own ? far_gaps_ : own_gaps_)
            .push_back(static_cast<double>(std::max<Ns>(0, event.start - std::max(own, far))));
    }

    void write(const Kind& kind, const Observations& samples, Costs& costs) const {
        const auto found = first_.find(kind);
        const Observations first = found == first_.end() ? Observations{} : found->second;
        const double slope = slope_of(samples, first), added = alone_of(samples, slope);
        const double written = first.empty() ? added : alone_of(first, slope);
        // Adding takes no less than writing: where it seems to, both are means of the same time.
        const auto count = static_cast<double>(samples.size()), of_first = static_cast<double>(first.size());
        const double least = std::min(written, (count * added + of_first * written) / (count + of_first));
        const double more = std::clamp(added - written, 0.0, added);
        const auto set = [&](StageCost& cost, double load) {
            cost.*facts_of(kind.op).cost = std::max<Ns>(1, std::llround(least + slope * load));
            if (makes_weight_gradient(kind.op))
                cost.accumulate = std::llround(more);
        };
        set((kind.last_microbatch ? costs.last : costs.stage)[kind.stage], 0);
        set((kind.last_microbatch ? costs.busy_last : costs.busy)[kind.stage], 1);
    }

    static TaskTimes times_of(const Kind& kind, const Observations& samples) {
        const double mean = mean_of(samples, &Observation::time);
        double variance = 0, together = 0;
        for (std::size_t k = 0; k < samples.size(); ++k) {
            variance += (samples[k].time - mean) * (samples[k].time - mean);
            if (k > 0)
                together += (samples[k].time - mean) * (samples[k - 1].time - mean);
        }
        const auto count = static_cast<double>(samples.size());
        return {kind.op,
                kind.stage,
                static_cast<int>(samples.size()),
                std::llround(mean),
                std::llround(std::sqrt(variance / std::max(1.0, count - 1))),
                variance > 0 ? together / variance : 0};
    }

    const Job& job_;
    const bool messages_are_timed_;               // on ranks, or on shared links: messages take their measured times
    std::map<Kind, Observations> later_, first_;  // first_: gradients that are written, not added
    std::map<Kind, Observations> predicting_;     // with predicted weights: the prediction adds to the time
    std::vector<double> own_gaps_, far_gaps_;
};

}  // namespace

ProbedCosts calibrate(const Job& job, const std::vector<ProbeTrace>& probes) {
    Collector collector(job);
    for (const ProbeTrace& probe : probes)
        collector.add(probe);
    return collector.calibration();
}

}  // namespace pw

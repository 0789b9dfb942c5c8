#include "sim/simulate.h"

#include "schedules/memory/buffers.h"
#include "schedules/memory/limits.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/contention.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/traffic.h"
#include "schedules/plan/versions.h"
#include "sim/event_queue.h"
#include "sim/explain.h"
#include "sim/metrics.h"
#include "sim/recurrence.h"
#include "workloads/error.h"
#include "workloads/random.h"
#include "workloads/threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace pw {

class Simulation {
public:
    Simulation(std::shared_ptr<const Plan> plan, std::shared_ptr<const Proof> proof,
               std::shared_ptr<const VersionTable> versions, TransferMode mode)
        : known_plan_(std::move(plan)),
          plan_(*known_plan_),
          proof_(std::move(proof)),
          graph_(proof_->graph),
          known_versions_(std::move(versions)),
          versions_(*known_versions_),
          kinds_(plan_, graph_, versions_),
          mode_(mode) {
        for (const std::vector<Task>& order : plan_.order)
            own_.push_back(own_.empty() ? own_of(order, 0) : own_of(order, own_.back().end));
    }

    void run(const Costs& costs) {
        take(costs);
        if (!busy_duration_.empty() || costs.mover_share > 0 || may_wait_for_calls(plan_.shape, costs) ||
            may_share_with_sums(graph_, mode_, costs))
            return run_events();
        if (!recurrence_ || recurrence_by_rendezvous_ != by_rendezvous_) {
            recurrence_.emplace(graph_, kinds_, mode_, *proof_, by_rendezvous_);
            recurrence_by_rendezvous_ = by_rendezvous_;
        }
        if (!recurrence_->runs_through())
            return run_events();  // which name what every device waits for
        by_events_ = false;
        recurrence_->evaluate(times_);
    }

    void run_by_events(const Costs& costs) {
        take(costs);
        run_events();
    }

    Samples sample(const Costs& costs, const Jitter& jitter, int draws, std::uint64_t seed, int threads,
                   const std::function<bool()>& should_stop);
    Explanation explain(const Costs& costs);

    Metrics metrics(const Costs& costs, const Trace& head);
    // These are of the costs last run.
    std::vector<TraceEvent> events() const;
    Trace trace() const;
    Ns step_time() const;

private:
    // The nodes of a device from `begin` to `end`, and among them the first and last that are not transfers, or -1.
    struct Own {
        int begin, end;
        int first = -1, last = -1;
    };
    static Own own_of(const std::vector<Task>& order, int begin) {
        Own own{begin, begin + static_cast<int>(order.size())};
        for (int position = 0; position < static_cast<int>(order.size()); ++position)
            if (!moves_data(order[position].op)) {
                own.first = own.first < 0 ? begin + position : own.first;
                own.last = begin + position;
            }
        return own;
    }

    Ns start_of(int node) const { return by_events_ ? events_->start(node) : recurrence_->start(node); }
    Ns end_of(int node) const { return by_events_ ? events_->end(node) : recurrence_->end(node); }
    bool overlaps(int node) const {
        const int kind = kinds_.of(node);
        return kind != TaskKinds::kNone && kinds_.all()[kind].pair >= 0;
    }
    // What a trace shows: the tasks of a pair that overlap are a single launch.
    std::pair<Ns, Ns> interval_of(int node) const {
        const int other = overlaps(node) ? graph_.paired_with(node) : node;
        return {start_of(std::min(node, other)), end_of(std::max(node, other))};
    }
    // By the time of each task, in the order that the costs do not change.
    struct OnePass {
        Recurrence* recurrence;
        const Recurrence::Times* times;
    };
    OnePass one_pass(const char* what);
    std::pair<Ns, Ns> extent() const;
    std::vector<int> updates_of_last_stage() const;  // nodes
    void append_events(int device, const Traffic& traffic, std::vector<TraceEvent>& events) const;

    void run_events() {
        by_events_ = true;
        if (!events_)
            events_.emplace(plan_, graph_, kinds_, mode_);
        events_->run(*costs_, times_.durations, times_.latencies, busy_duration_, by_rendezvous_);
    }

    void take(const Costs& costs) {
        costs_ = &costs;
        if (costs.lengths != lengths_ || overlaps_pairs(costs) != tells_pairs_) {
            lengths_ = costs.lengths;
            tells_pairs_ = overlaps_pairs(costs);
            kinds_ = TaskKinds(plan_, graph_, versions_, classes_of(lengths_), tells_pairs_);
        }
        times_ = {kinds_.durations(graph_, plan_.shape, costs), kinds_.latencies(costs), kinds_.sum_delays(costs)};
        busy_duration_ = kinds_.busy_durations(graph_, plan_.shape, costs);
        if (mode_.eager_limit > 0)
            by_rendezvous_ = sends_by_rendezvous(mode_, Traffic(plan_.shape, graph_.index(), costs).bytes(graph_));
        refuse_long(graph_, kinds_, times_.durations, busy_duration_, costs);
    }

    const std::shared_ptr<const Plan> known_plan_;
    const Plan& plan_;
    const Costs* costs_ = nullptr;
    const std::shared_ptr<const Proof> proof_;
    const PlanGraph& graph_;
    const std::shared_ptr<const VersionTable> known_versions_;
    const VersionTable& versions_;
    std::vector<MicroBatchLength> lengths_;  // of the costs
    bool tells_pairs_ = false;
    TaskKinds kinds_;
    const TransferMode mode_;
    std::vector<Own> own_;                  // by device
    std::optional<Recurrence> recurrence_;  // each is made for the costs that need it
    std::optional<EventQueue> events_;      // the same
    // The times that tasks took while they slowed each other down, if the times are from events: by node.
    std::optional<TaskKinds> own_kinds_;
    std::optional<Recurrence> own_times_;
    Recurrence::Times node_times_;
    std::vector<Ns> called_late_;    // the part of its duration that a task waited for its host's dispatcher
    Recurrence::Times times_;        // by kind
    std::vector<Ns> busy_duration_;  // by kind
    std::vector<char> by_rendezvous_, recurrence_by_rendezvous_;  // sends_by_rendezvous(), and of the recurrence
    bool by_events_ = false;                                      // whether the last times come from events_
};

void Simulation::append_events(int device, const Traffic& traffic, std::vector<TraceEvent>& events) const {
    for (int node = own_[device].begin; node < own_[device].end; ++node) {
        const Task& task = graph_.task(node);
        const auto [start, end] = interval_of(node);
        events.push_back({0, device, 0, task, start, end, traffic.bytes(task), version_of(task, versions_, plan_),
                          ahead_of(task, versions_)});
    }
}

std::vector<TraceEvent> Simulation::events() const {
    refuse_large_trace(graph_, plan_.shape);
    const Traffic traffic(plan_.shape, graph_.index(), *costs_);
    std::vector<TraceEvent> events;
    events.reserve(static_cast<std::size_t>(graph_.size()));
    for (int device = 0; device < plan_.shape.devices; ++device)
        append_events(device, traffic, events);
    return events;
}

Trace Simulation::trace() const {
    Trace trace = trace_of(plan_);
    trace.events = events();
    trace.label = kPredicted;
    const std::vector<Buffer> buffers = buffers_of(plan_, *proof_, *costs_, versions_, mode_.early_receive());
    const Rows buffers_on = by_device(buffers, plan_.shape.devices);
    trace.reserved = needed_by(plan_, buffers, *costs_);
    for (int device = 0; device < plan_.shape.devices; ++device) {
        const std::vector<MemoryUse> memory = memory_of(plan_.order[device], buffers, buffers_on[device]);
        // Memory follows the list: a position's buffers live from its task's start. A copy's buffers live from the end
        // of the tasks that the list has waited for.
        Ns reached = 0, passed = 0;
        for (int position = 0; position < static_cast<int>(memory.size()); ++position) {
            const int node = own_[device].begin + position;
            const Op op = node < own_[device].end ? graph_.task(node).op : Op::SendForward;
            if (!moves_data(op))
                reached = interval_of(node).first;
            if (!moves_data(op) || leaves_device(op))
                passed = std::max(passed, end_of(node));
            if (is_copy(op))
                reached = std::max(reached, passed);
            if (const MemoryUse& use = memory[position]; position == 0 || use != trace.memory.back().use)
                trace.memory.push_back({0, device, reached, use});
            if (node < own_[device].end && overlaps(node) && graph_.paired_with(node) < node)
                reached = end_of(node);  // the transfers after a pair
        }
    }
    return trace;
}

std::pair<Ns, Ns> Simulation::extent() const {
    Ns first = std::numeric_limits<Ns>::max(), last = 0;
    for (const Own& own : own_)
        if (own.first >= 0) {
            first = std::min(first, start_of(own.first));
            last = std::max(last, end_of(own.last));
        }
    return {std::min(first, last), last};
}

std::vector<int> Simulation::updates_of_last_stage() const {
    std::vector<int> updates;
    const int last_stage = plan_.shape.stages - 1;
    const Own& own = own_[graph_.index().devices_of(last_stage).front()];
    for (int node = own.begin; node < own.end; ++node)
        if (const Task& task = graph_.task(node); task.op == Op::Update && task.stage == last_stage)
            updates.push_back(node);
    return updates;
}

Ns Simulation::step_time() const {
    const auto [first, last] = extent();
    if (!plan_.asynchronous)
        return last - first;
    std::vector<Ns> updates;
    for (const int node : updates_of_last_stage())
        updates.push_back(end_of(node));
    return asynchronous_step_time(updates, plan_.shape.stages, last - first);
}

// Devices and messages that share something change each other's rates, which a single pass cannot compute. But with the
// times that tasks took in this step, slowdown included, a single pass gives the same step.
Simulation::OnePass Simulation::one_pass(const char* what) {
    if (!by_events_)
        return {&*recurrence_, &times_};
    own_kinds_.emplace(graph_);
    own_times_.emplace(graph_, *own_kinds_, mode_, *proof_, by_rendezvous_);
    const std::vector<Ns> none(static_cast<std::size_t>(graph_.size()), 0);
    called_late_ = may_wait_for_calls(plan_.shape, *costs_) ? waits_for_calls(graph_, *own_times_, *events_) : none;
    node_times_ = {none, none};
    for (int node = 0; node < graph_.size(); ++node) {
        if (!is_recv(graph_.task(node).op))
            node_times_.durations[node] = end_of(node) - start_of(node);
        if (!moves_data(graph_.task(node).op))
            node_times_.durations[node] += called_late_[node];
        if (is_send(graph_.task(node).op))
            node_times_.latencies[node] = times_.latencies[kinds_.of(node)];
    }
    own_times_->evaluate(node_times_);
    for (int node = 0; node < graph_.size(); ++node)
        if (own_times_->end(node) != end_of(node))
            fail("no pass gives the step of these costs, so there are no {}\n  help: report it, with the config", what);
    return {&*own_times_, &node_times_};
}

Explanation Simulation::explain(const Costs& costs) {
    run(costs);
    const OnePass pass = one_pass("critical paths");
    Explanation all = pw::explain({plan_, graph_, mode_, kinds_, by_events_ ? *own_kinds_ : kinds_, *pass.times,
                                   *pass.recurrence, classes_of(lengths_)});
    if (by_events_)
        add_waits_for_calls(graph_, *events_, called_late_, all);
    return all;
}

Samples Simulation::sample(const Costs& costs, const Jitter& jitter, int draws, std::uint64_t seed, int threads,
                           const std::function<bool()>& should_stop) {
    if (may_wait_for_calls(plan_.shape, costs))
        fail_about(
            {Setting::Dispatcher},
            "--samples: devices of a host share a dispatcher, and which call it issues next changes from draw to "
            "draw\n  help: give every device its own dispatcher, or ask --what-if");
    run(costs);
    const OnePass pass = one_pass("samples");
    constexpr auto kCount = static_cast<int>(Recurrence::Draws::kCount);
    refuse_large_table(static_cast<double>(threads) * kCount * sizeof(double) * graph_.size(), plan_.shape);
    const std::vector<int> updates = plan_.asynchronous ? updates_of_last_stage() : std::vector<int>{};
    const int groups = (draws - 1) / kCount + 1;
    Samples samples{std::vector<Ns>(static_cast<std::size_t>(groups) * kCount), {}};
    std::vector<int> busiest(samples.step_times.size());  // by draw
    std::atomic<int> next = 0;                            // every group below it is drawn in the end
    std::atomic<bool> stops = false;
    const auto goes_on = [&] {
        if (should_stop && should_stop())
            stops = true;
        return !stops;
    };
    const auto work = [&] {
        Recurrence::Draws drawn;
        drawn.busy.resize(own_.size() * kCount);
        while (goes_on()) {
            const int group = next++;
            if (group >= groups)
                break;
            pass.recurrence->draw(*pass.times, jitter, mixed(seed, static_cast<std::uint64_t>(group)), drawn);
            for (int draw = 0; draw < kCount; ++draw) {
                const auto at = static_cast<std::size_t>(group) * kCount + static_cast<std::size_t>(draw);
                const auto end_of_node = [&](int node) {
                    return std::llround(drawn.end[static_cast<std::size_t>(node) * kCount + draw]);
                };
                Ns last = 0;  // the first task of all begins at 0
                int slowest = 0;
                for (int device = 0; device < static_cast<int>(own_.size()); ++device) {
                    if (own_[device].last >= 0)
                        last = std::max<Ns>(last, end_of_node(own_[device].last));
                    if (drawn.busy[device * kCount + draw] > drawn.busy[slowest * kCount + draw])
                        slowest = device;
                }
                std::vector<Ns> ends;
                ends.reserve(updates.size());
                for (const int node : updates)
                    ends.push_back(end_of_node(node));
                samples.step_times[at] =
                    plan_.asynchronous ? asynchronous_step_time(std::move(ends), plan_.shape.stages, last) : last;
                busiest[at] = slowest;
            }
        }
    };
    const int workers = std::min(threads, groups);
    for_each_index(static_cast<std::size_t>(workers), workers, [&](std::size_t) { work(); });
    const int count = std::min(draws, std::min(next.load(), groups) * kCount);
    samples.step_times.resize(static_cast<std::size_t>(count));
    samples.slowest.assign(own_.size(), 0);
    for (int draw = 0; draw < count; ++draw)
        ++samples.slowest[static_cast<std::size_t>(busiest[static_cast<std::size_t>(draw)])];
    return samples;
}

Metrics Simulation::metrics(const Costs& costs, const Trace& head) {
    const bool is_proven = !proof_->order.empty();
    if (!is_proven)
        run(costs);  // which refuses a plan that does not complete
    const std::vector<MemoryOfDevice> memory =
        memory_by_device(plan_, *proof_, costs, versions_, mode_.early_receive());
    if (is_proven)
        run(costs);  // after the tables for the memory are gone: the tables of a run are as large
    const auto [first, last] = extent();
    StepMetrics of_devices(head, first, last);
    const Traffic traffic(plan_.shape, graph_.index(), *costs_);
    std::vector<TraceEvent> own;
    for (int device = 0; device < plan_.shape.devices; ++device) {
        own.clear();
        append_events(device, traffic, own);
        of_devices.add(own);
    }
    Metrics metrics = of_devices.of_step(step_time());
    for (std::size_t device = 0; device < memory.size(); ++device) {
        note_memory(metrics.devices[device], memory[device].peak);
        metrics.devices[device].reserved_memory = memory[device].needed;
    }
    return metrics;
}

namespace {

Simulator unproven(std::shared_ptr<const Plan> plan, TransferMode mode) {
    auto proof = std::make_shared<const Proof>(Proof{PlanGraph(*plan)});
    auto versions = std::make_shared<const VersionTable>(versions_of(*plan));
    return {std::move(plan), std::move(proof), std::move(versions), mode};
}

}  // namespace

Simulator::Simulator(Plan plan, TransferMode mode)
    : Simulator(unproven(std::make_shared<const Plan>(std::move(plan)), mode)) {}
Simulator::Simulator(std::shared_ptr<const Plan> plan, std::shared_ptr<const Proof> proof,
                     std::shared_ptr<const VersionTable> versions, TransferMode mode)
    : simulation_(std::make_unique<Simulation>(std::move(plan), std::move(proof), std::move(versions), mode)) {}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;

Trace Simulator::trace(const Costs& costs) {
    simulation_->run(costs);
    return simulation_->trace();
}

std::vector<TraceEvent> Simulator::events(const Costs& costs) {
    simulation_->run(costs);
    return simulation_->events();
}

Metrics Simulator::metrics(const Costs& costs, const Trace& head) { return simulation_->metrics(costs, head); }

Explanation Simulator::explain(const Costs& costs) { return simulation_->explain(costs); }

Samples Simulator::sample(const Costs& costs, const Jitter& jitter, int draws, std::uint64_t seed, int threads,
                          const std::function<bool()>& should_stop) {
    return simulation_->sample(costs, jitter, draws, seed, threads, should_stop);
}

Ns Simulator::step_time(const Costs& costs) {
    simulation_->run(costs);
    return simulation_->step_time();
}

Trace Simulator::trace_by_events(const Costs& costs) {
    simulation_->run_by_events(costs);
    return simulation_->trace();
}

Trace simulate(const Plan& plan, const Costs& costs, TransferMode mode) {
    mode.sent_copies = keeps_copies(costs, mode.early_receive());
    return unproven({std::shared_ptr<const void>(), &plan}, mode).trace(costs);  // the plan outlives this call
}

}  // namespace pw

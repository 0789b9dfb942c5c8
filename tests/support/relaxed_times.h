// The times of a plan from every rule of waiting as one inequality, without a graph, lanes or an order: all times begin
// at 0 and are raised until every rule is fulfilled.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

struct TaskTime {
    Ns start = 0, end = 0;
    bool operator==(const TaskTime&) const = default;
};
inline void PrintTo(const TaskTime& time, std::ostream* out) { *out << time.start << " to " << time.end; }

// Tasks are numbered device by device.
class RelaxedTimes {
public:
    // `durations` are by task; that of a SEND is the time for which it occupies its link. `bytes` are those of
    // transfers; `latency` is that between two devices.
    using Latency = std::function<Ns(int from, int to)>;
    RelaxedTimes(const Plan& plan, const TransferMode& mode, const Latency& latency, const std::vector<Ns>& durations,
                 const std::vector<Bytes>& bytes)
        : plan_(plan), mode_(mode), bytes_(bytes) {
        for (std::size_t device = 0; device < plan.order.size(); ++device)
            for (const Task& task : plan.order[device]) {
                if (task.op != Op::Update && task.op != Op::SumGradients)
                    number_of_[task] = static_cast<int>(tasks_.size());
                if (meets(task))
                    barriers_[barrier_of(task)].push_back(static_cast<int>(tasks_.size()));
                tasks_.push_back(task);
                device_.push_back(static_cast<int>(device));
            }
        for (int number = 0; number < static_cast<int>(tasks_.size()); ++number)
            rules_.push_back(is_transfer(tasks_[number].op) ? rule_of_transfer(number) : rule_of_compute(number));
        for (std::size_t number = 0; number + 1 < tasks_.size(); ++number)
            if (tasks_[number].with_next)  // a pair starts when the inputs of both are there
                rules_[number].inputs.insert(rules_[number].inputs.end(), rules_[number + 1].inputs.begin(),
                                             rules_[number + 1].inputs.end());
        times_.resize(tasks_.size());
        free_.resize(tasks_.size(), 0);
        // at most this many raises follow from each other, two of a task, unless tasks wait in a cycle
        std::size_t left = 2 * tasks_.size() + 1;
        while (raise(latency, durations) && left > 0)
            --left;
        fulfilled_ = left > 0;
    }

    bool fulfilled() const { return fulfilled_; }
    const std::vector<TaskTime>& times() const { return times_; }

private:
    // The tasks that a task waits for besides its list; -1 for none.
    struct Rule {
        std::vector<int> inputs;
        int in_lane = -1;    // the transfer before it
        int copied = -1;     // the SEND before it whose copy it takes
        int other_end = -1;  // of a transfer
    };

    bool meets(const Task& task) const {
        return task.op == Op::SumGradients || (task.op == Op::Update && plan_.shape.global_norm);
    }

    // Tasks that begin together have one key: sums of a stage, or at the end of all stages that share parameters, and
    // with a common norm all updates.
    std::pair<int, int> barrier_of(const Task& task) const {
        std::set<int> stages = {task.stage};
        for (bool grows = task.op == Op::SumGradients; grows;) {
            const std::size_t before = stages.size();
            for (const Edge& tie : plan_.shape.ties)
                if (stages.contains(tie.from) || stages.contains(tie.to))
                    stages.insert({tie.from, tie.to});
            grows = stages.size() > before;
        }
        return {task.microbatch, task.op == Op::SumGradients ? *stages.begin() : -1};
    }

    std::vector<Edge> edges() const {
        if (plan_.shape.edges)
            return *plan_.shape.edges;
        std::vector<Edge> chain;
        for (int stage = 1; stage < plan_.shape.stages; ++stage)
            chain.push_back({stage - 1, stage});
        return chain;
    }

    Rule rule_of_transfer(int number) {
        const Task& task = tasks_[number];
        Rule rule;
        rule.other_end = number_of_.at(other_end(task));
        const int gradient = task.op == Op::SendBackward || task.op == Op::RecvBackward ? 1 : 0;
        std::array<int, 4> lane = {device_[number], 0, 0, 0};
        if (mode_.communicator == TransferMode::Communicator::Direction)
            lane = {device_[number], gradient, 0, 0};
        if (mode_.communicator == TransferMode::Communicator::Edge)
            lane = {device_[number], gradient, device_[rule.other_end], is_send(task.op)};
        rule.in_lane = take_place(last_in_lane_, lane, number);
        if (is_send(task.op) && mode_.sent_copies)
            rule.copied = take_place(last_copied_, {device_[number], gradient, task.stage, task.peer}, number);
        return rule;
    }

    // Returns the last task with `key` so far.
    static int take_place(std::map<std::array<int, 4>, int>& last, const std::array<int, 4>& key, int number) {
        const auto [found, fresh] = last.try_emplace(key, number);
        return fresh ? -1 : std::exchange(found->second, number);
    }

    Rule rule_of_compute(int number) {
        const Task& task = tasks_[number];
        const int stage = task.stage, mb = task.microbatch;
        Rule rule;
        // a tensor of another stage comes from a task of this device or with its RECV
        const auto add_tensor = [&](std::initializer_list<Task> makers, const Task& recv) {
            for (const Task& maker : makers)
                if (const auto made = number_of_.find(maker);
                    made != number_of_.end() && device_[made->second] == device_[number])
                    return rule.inputs.push_back(made->second);
            rule.inputs.push_back(number_of_.at(recv));
        };
        for (const Edge& edge : edges()) {
            if (task.op == Op::Forward && edge.to == stage)
                add_tensor({{Op::Forward, edge.from, mb}}, {Op::RecvForward, stage, mb, 0, edge.from});
            if ((task.op == Op::Backward || task.op == Op::BackwardInput) && edge.from == stage)
                add_tensor({{Op::Backward, edge.to, mb}, {Op::BackwardInput, edge.to, mb}},
                           {Op::RecvBackward, stage, mb, 0, edge.to});
        }
        if (meets(task))
            add_arrivals(barriers_.at(barrier_of(task)), rule.inputs);
        return rule;
    }

    // A device arrives at a barrier when it has computed the tasks before its first task there.
    void add_arrivals(const std::vector<int>& barrier, std::vector<int>& inputs) const {
        std::set<int> devices;
        for (const int first : barrier) {
            if (!devices.insert(device_[first]).second)
                continue;
            int before = first - 1;
            while (before >= 0 && device_[before] == device_[first] && is_transfer(tasks_[before].op))
                --before;
            if (before >= 0 && device_[before] == device_[first])
                inputs.push_back(before);
        }
    }

    Ns end_of(int number) const { return number < 0 ? 0 : times_[number].end; }

    // Raises every time to the value that its rule requires; false if all are there already.
    bool raise(const Latency& latency, const std::vector<Ns>& durations) {
        bool raised = false;
        Ns reached = 0;    // when the list comes here
        Ns exchanged = 0;  // where exchanges block: when the one before the next task that computes is over
        for (int number = 0; number < static_cast<int>(tasks_.size()); ++number) {
            if (number == 0 || device_[number] != device_[number - 1])
                reached = exchanged = 0;
            const Op op = tasks_[number].op;
            const Rule& rule = rules_[number];
            TaskTime now;
            if (is_transfer(op)) {
                reached = std::max(reached, end_of(rule.copied));
                const bool at_once = is_recv(op) && mode_.receive == TransferMode::Receive::Early;
                const Ns free = std::max(at_once ? 0 : reached, end_of(rule.in_lane));
                raised |= free != std::exchange(free_[number], free);
                const bool waits = mode_.protocol == TransferMode::Protocol::Rendezvous &&
                                   (mode_.eager_limit == 0 || bytes_[number] > mode_.eager_limit);
                now.start = is_recv(op) ? times_[rule.other_end].start
                            : waits     ? std::max(free, free_[rule.other_end])
                                        : free;
                now.end =
                    is_recv(op)
                        ? std::max(free, end_of(rule.other_end) + latency(device_[rule.other_end], device_[number]))
                        : now.start + durations[number];
                exchanged = std::max(exchanged, now.end);
            } else {
                const bool blocks = mode_.exchange == TransferMode::Exchange::Blocking;
                now.start = std::max(reached, blocks ? exchanged : 0);
                for (const int input : rule.inputs)
                    now.start = std::max(now.start, end_of(input));
                now.end = reached = now.start + durations[number];
            }
            raised |= now != std::exchange(times_[number], now);
        }
        return raised;
    }

    const Plan& plan_;
    const TransferMode& mode_;
    const std::vector<Bytes>& bytes_;
    std::vector<Task> tasks_;
    std::vector<int> device_;
    std::map<Task, int> number_of_;
    std::map<std::pair<int, int>, std::vector<int>> barriers_;
    std::map<std::array<int, 4>, int> last_in_lane_, last_copied_;
    std::vector<Rule> rules_;
    std::vector<TaskTime> times_;
    std::vector<Ns> free_;  // of transfers: when their list and lane have come to them
    bool fulfilled_ = false;
};

}  // namespace pw

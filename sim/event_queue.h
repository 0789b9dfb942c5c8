// The times of a plan from a queue of events. It is needed if devices of a host slow each other down, or if messages
// share capacities on their way.
#pragma once

#include "schedules/plan/durations.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/rows.h"
#include "workloads/cluster/fair_shares.h"
#include "workloads/costs/costs.h"

#include <cstdint>
#include <queue>
#include <set>
#include <utility>
#include <vector>

namespace pw {

// Keeps references to the plan, its graph and its kinds.
class EventQueue {
public:
    EventQueue(const Plan& plan, const PlanGraph& graph, const TaskKinds& kinds, const TransferMode& mode);

    // Durations are by kind. A SEND has the time for which it occupies its link. Latencies until its message arrives
    // are by kind, too. `busy` may be empty. Of `costs` only what tasks share is read: the cluster, sums, movers and
    // dispatchers. All arguments are read until the next run. `by_rendezvous` is sends_by_rendezvous(). Throws Error
    // (Infeasible) if the plan deadlocks, naming what every device waits for.
    void run(const Costs& costs, const std::vector<Ns>& durations, const std::vector<Ns>& latencies,
             const std::vector<Ns>& busy, const std::vector<char>& by_rendezvous = {});

    // These are of the last run.
    Ns start(int node) const { return start_[node]; }
    Ns end(int node) const { return end_[node]; }

private:
    enum class What : std::uint8_t {
        ComputeEnds,
        LinkFree,
        FlowEnds,
        StepEnds,
        BucketFull,
        JoinedSumEnds,
        Arrives,
        CallEnds,
        CopyEnds
    };

    struct Event {
        Ns time;
        std::int64_t seq;  // ties break by insertion order, so a run repeats exactly
        What what;
        int node;  // of CallEnds the host
        auto operator<=>(const Event&) const = default;
    };

    // Devices of a host that compute at the same time share resources, memory bandwidth above all. A task takes `alone`
    // by itself and `busy` while n more compute (Costs::neighbours). While k more compute it takes alone + (busy -
    // alone) k / n, a line between the two measured times. With more than n, it takes `busy`. Kernels that move
    // messages take a part of the device, too.
    struct Progress {
        int node = -1;      // -1 when the device does not compute
        double left = 1;    // of the task
        double rate = 0;    // per nanosecond
        bool sums = false;  // it waits for the messages of a sum
        Ns since = 0;
        std::int64_t end = -1;  // seq of the event that ends it, unless the rate changes before
    };

    // A host that issues the calls of all its devices, one at a time: a task starts with its call, which takes the
    // first Costs::dispatch of the task. A device requests a call when it has reached the task and the inputs are
    // ready. The host takes the earliest request first. Among requests at the same moment, it takes the request of the
    // device with the smallest number.
    struct Dispatcher {
        Ns free = 0;                                 // when the last call has been issued
        std::set<std::pair<Ns, int>> requests = {};  // time, device
    };

    // The copies of a lane of a device, each of which waits for the copy before it.
    struct CopyLane {
        std::vector<int> nodes = {};  // as listed
        std::size_t head = 0;
        bool busy = false;  // its head has started
    };

    // A message that shares capacities with more messages, so that its rate changes with them.
    struct Flow {
        Demand demand;          // in parts of `unit_`
        int send = -1;          // node, or
        int sum = -1;           // which sum it belongs to
        Ns latency = 0;         // of a sum's
        Progressing way;        // its rate is 1 when it is alone
        std::int64_t end = -1;  // seq of the event that ends it, unless the rate changes before
    };

    // A sum of gradients whose messages may share capacities: S of a stage and mini-batch on all holders, or the gather
    // at the end of their U.
    struct Sum {
        int work = 0;  // a stage, for U the number of stages later
        std::vector<int> nodes = {};
        std::size_t round = 0;
        int step = 0;               // of the round
        int under_way = 0;          // flows of the step
        double reached = 0;         // when the last message of the step arrives, of those that have left
        Ns begun = -1, ended = -1;  // -1: not yet
        int to_fill = 0;            // holders whose first bucket is not full yet, where there are several buckets
        Ns filled = 0;              // when the last bucket was full on the last of the holders so far
    };
    struct SumMessage {
        Demand demand;
        double alone;  // nanoseconds
        Ns latency;
    };
    struct Round {
        std::vector<SumMessage> messages;
        int steps;
    };

    Ns alone_of(int node) const { return (*durations_)[kinds_.of(node)]; }
    void begin();
    void place_on_hosts();
    void lay_routes();
    void push(Ns time, What what, int node) { queue_.push({time, seq_++, what, node}); }
    void handle(const Event& event);
    void settle(Ns now);
    void start_send(int send, Ns now);
    void finish(int node, Ns time);
    void release(int node, bool waiting_for_sum, Ns now);
    void advance(const std::vector<int>& devices, Ns now);
    void advance(int device, Ns now);
    void start_task(int device, Ns now);
    void ask_for_call(int device, Ns now);
    void issue_calls(Ns now);
    void change_rates(int changed, Ns now);
    double crowd_around(int device) const;
    void set_pace(int device, double crowd, Ns now);
    void count_movers(int device, int change, Ns now);
    void count_movers_of(int send, int change, Ns now);
    Ns latency_of(int send) const { return (*latencies_)[kinds_.of(send)]; }
    bool needs_call(int node) const;
    void leave(int send, Ns now);
    CopyLane& lane_of_copy(int node);
    void start_copies(CopyLane& lane, Ns now);
    void end_copy(int node, Ns now);
    void end_flow(std::int64_t seq, Ns now);
    void share_links(Ns now);
    void share_when_due(Ns now);
    void lay_sums();
    std::vector<Round> rounds_for(const StageSum& sum) const;
    const StageSum& sum_of_work(int work) const;
    Ns after_own(int node) const;
    void fill_buckets();
    void begin_sum(int number, Ns now);
    void join_sum(int node, Ns now);
    void begin_step(int number, double at, Ns now);
    void end_step(int number, Ns now);
    void end_flow_of_sum(const Flow& flow, Ns now);
    void end_share_of_sum(int node);
    void set_rate(Flow& flow, double rate, Ns now);
    void explain_deadlock() const;

    const Plan& plan_;
    const PlanGraph& graph_;
    const TaskKinds& kinds_;
    const TransferMode mode_;
    Lanes lanes_;
    const Rows readers_;
    const Costs* costs_ = nullptr;
    const std::vector<Ns>*durations_ = nullptr, *latencies_ = nullptr, *busy_ = nullptr;
    std::vector<Progress> progress_;            // by device
    std::vector<int> host_of_;                  // by device
    std::vector<std::vector<int>> devices_on_;  // by host
    std::vector<Dispatcher> dispatchers_;       // by host, or empty where every device issues its own calls
    std::vector<char> call_requested_;          // by device
    std::vector<int> hosts_to_call_;            // hosts that got a request, or became free, since the last calls
    double unit_ = 1;               // bytes per second that count as 1: the rate of the fastest message alone
    std::vector<Demand> demands_;   // by kind of SEND
    std::vector<CopyLane> copies_;  // two lanes by device
    FairShares shares_;
    std::vector<Flow> flows_;
    std::vector<std::vector<Round>> rounds_;  // by Sum::work, or none where a sum takes its time alone
    std::vector<Sum> sums_;
    std::vector<int> sum_of_;      // by node, or -1: it belongs to no sum
    std::vector<int> fills_;       // by node: the sum whose buckets it fills, or -1. Empty without buckets
    bool share_is_due_ = false;    // flows of sums have come or gone at this moment
    std::vector<int> movers_;      // by device: messages and sums under way that take a part of it
    std::vector<int> ready_;       // devices that may go on at this moment
    std::vector<int> waits_;       // by node: inputs to come
    std::vector<Ns> start_, end_;  // by node
    std::vector<int> next_;        // by device: the position that its list has reached
    std::vector<int> exchanging_;  // by device, where exchanges block: transfers that its list has passed, not complete
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    std::int64_t seq_ = 0;
};

}  // namespace pw

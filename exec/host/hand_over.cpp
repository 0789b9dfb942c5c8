// What a hand-over by pointer between the threads of two devices costs.
#include "exec/execute.h"
#include "exec/host/host_work.h"
#include "exec/host/pin.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace pw {

namespace {

// Devices 0 and 1 hand `rounds` micro-batches to each other, there and back.
Plan ping_pong(int rounds) {
    Plan plan;
    plan.shape.devices = plan.shape.stages = 2;
    plan.shape.microbatches = rounds;
    plan.order.resize(2);
    for (int round = 0; round < rounds; ++round) {
        for (const Task& task : {Task{Op::Forward, 0, round}, Task{Op::SendForward, 0, round, 0, 1},
                                 Task{Op::RecvBackward, 0, round, 0, 1}})
            plan.order[0].push_back(task);
        for (const Task& task : {Task{Op::RecvForward, 1, round, 0, 0}, Task{Op::Forward, 1, round},
                                 Task{Op::Backward, 1, round}, Task{Op::SendBackward, 1, round, 0, 0}})
            plan.order[1].push_back(task);
    }
    return plan;
}

// One way of a hand-over between two pinned threads: half a round trip through the mailbox.
Ns hand_over_time(const CorePlan& cores) {
    constexpr int kRounds = 200;
    const Plan plan = ping_pong(kRounds);
    const PlanGraph graph(plan);
    Mailbox::Options options;
    options.mode.sent_copies = false;
    options.spin = !cores.shared;
    Mailbox mailbox(graph, options);
    std::vector<Ns> trips;
    std::thread other([&] {
        pin_this_thread(cores.shared ? std::vector<int>{} : cores.cores[1]);
        for (int round = 0; round < kRounds; ++round) {
            mailbox.wait(graph.node(1, 4 * round));
            mailbox.post(graph.node(1, 4 * round + 3));
        }
    });
    for (int round = 0; round < kRounds; ++round) {
        const Ns start = clock_now();
        mailbox.post(graph.node(0, 3 * round + 1));
        mailbox.wait(graph.node(0, 3 * round + 2));
        trips.push_back((clock_now() - start) / 2);
    }
    other.join();
    std::nth_element(trips.begin(), trips.begin() + kRounds / 2, trips.end());
    return trips[kRounds / 2];
}

}  // namespace

HandOver measure_host_hand_over(const Config& config) {
    const CorePlan cores = plan_cores(2, config.run.threads_per_device);
    return {{hand_over_time(cores), std::numeric_limits<double>::infinity()}, false};
}

}  // namespace pw

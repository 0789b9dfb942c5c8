// Measures the cost of a message by pointer between the threads of two devices, and of a sum of gradients in their
// shared memory.
#include "exec/measuring/transfer_cost.h"
#include "exec/backends.h"
#include "exec/engine/device.h"
#include "exec/engine/pin.h"
#include "exec/execute.h"
#include "exec/system/threads.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/first_failure.h"
#include "workloads/median.h"

#include <algorithm>
#include <limits>

namespace pw {

namespace {

void pin_device(const CorePlan& cores, int device) {
    pin_this_thread(cores.shared ? std::vector<int>{} : cores.cores[device]);
}

// Devices 0 and 1 send each other `rounds` micro-batches, there and back.
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

// The time of a message between two pinned threads: half a round trip through the mailbox.
Ns message_time(const CorePlan& cores) {
    constexpr int kPingPongs = 200;
    const Plan plan = ping_pong(kPingPongs);
    const PlanGraph graph(plan);
    Mailbox::Options options;
    options.mode.sent_copies = false;
    options.spin = !cores.shared;
    Mailbox mailbox(graph, options);
    std::vector<Ns> trips;
    FirstFailure failure;
    const auto stop = [&] { mailbox.abort(); };
    const auto answer = [&] {
        pin_device(cores, 1);
        for (int round = 0; round < kPingPongs; ++round) {
            mailbox.wait(graph.node(1, 4 * round));
            mailbox.post(graph.node(1, 4 * round + 3));
        }
    };
    const auto ask = [&] {
        for (int round = 0; round < kPingPongs; ++round) {
            const Ns start = clock_now();
            mailbox.post(graph.node(0, 3 * round + 1));
            mailbox.wait(graph.node(0, 3 * round + 2));
            trips.push_back((clock_now() - start) / 2);
        }
    };
    Thread other = start_thread("a measured message", [&] { failure.guard(answer, stop); });
    failure.guard(ask, stop);
    other.join();
    failure.rethrow();
    return upper_median(std::move(trips));
}

// A stage on two devices.
Plan two_holders() {
    Plan plan;
    plan.shape.devices = plan.shape.microbatches = 2;
    plan.shape.placement = {{0, 1}};
    for (int device = 0; device < 2; ++device)
        plan.order.push_back({{Op::Forward, 0, device}, {Op::Backward, 0, device}, {Op::SumGradients, 0, 1}});
    return plan;
}

// Two devices do the work of an S: each adds one half of both blocks, and copies the other half. Both
// synchronise after each of the two steps.
class Sums {
public:
    Sums(const Setup& setup, const CorePlan& cores) : setup_(setup), cores_(cores) {}

    // Medians over repeated sums of blocks of these sizes.
    std::vector<Ns> times(const std::vector<Bytes>& sizes) {
        std::vector<Ns> medians, ignored;
        const auto stop = [&] { barriers_.abort(); };
        std::vector<Thread> threads;
        const auto start_both = [&] {
            for (const int device : {0, 1})
                threads.push_back(start_thread(fmt::format("device {}", device), [&, device] {
                    failure_.guard([&] { (device == 0 ? medians : ignored) = run(device, sizes); }, stop);
                }));
        };
        failure_.guard(start_both, stop);
        for (Thread& thread : threads)
            thread.join();
        failure_.rethrow();
        return medians;
    }

private:
    std::vector<Ns> run(int device, const std::vector<Bytes>& sizes) {
        constexpr int kRepeats = 9;
        pin_device(cores_, device);
        const std::shared_ptr<const Kernels> kernels = open_kernels(setup_, 2)(device);
        const std::unique_ptr<Memory> memory =
            kernels->reserve(*std::max_element(sizes.begin(), sizes.end()), "the profile");
        block_[device] = memory->data();
        const int node = graph_.node(device, 2);
        std::vector<Ns> medians;
        for (const Bytes bytes : sizes) {
            std::vector<Ns> times;
            for (int repeat = 0; repeat <= kRepeats; ++repeat) {
                barriers_.arrive(node);
                const Ns start = clock_now();
                sum(device, node, bytes, *kernels);
                if (repeat > 0)  // the first time includes page faults
                    times.push_back(clock_now() - start);
            }
            medians.push_back(upper_median(std::move(times)));
        }
        return medians;
    }

    void sum(int device, int node, Bytes bytes, const Kernels& kernels) {
        const Bytes half = bytes / 2, own = device * half, other = half - own;
        kernels.sum(std::vector<const std::byte*>{block_[0], block_[1]}, own, half, block_[device]);
        barriers_.arrive(node);
        kernels.copy(block_[1 - device] + other, block_[device] + other, half);
        barriers_.arrive(node);
    }

    const Setup& setup_;
    const CorePlan& cores_;
    const Plan plan_ = two_holders();
    const PlanGraph graph_{plan_};
    Barriers barriers_{graph_, plan_.shape, setup_.run.timeout};
    std::byte* block_[2] = {};
    FirstFailure failure_;
};

// The link over which a ring of two takes the same time: ring_sum(2, bytes) = 2 latency + bytes / bandwidth.
Link measured_sums(const Setup& setup, const CorePlan& cores) {
    constexpr Bytes kSmall = 4096, kLarge = Bytes{64} << 20;
    const std::vector<Ns> times = Sums(setup, cores).times({kSmall, kLarge});
    const Ns longer = std::max<Ns>(times[1] - times[0], 1);
    return {times[0] / 2, static_cast<double>(kLarge - kSmall) * 1e9 / static_cast<double>(longer)};
}

}  // namespace

TransferCost measure_host_transfer_cost(const Setup& setup) {
    const CorePlan cores = plan_cores(2, setup.run.threads_per_device);
    return {.link = {message_time(cores), std::numeric_limits<double>::infinity()},
            .sums = measured_sums(setup, cores)};
}

}  // namespace pw

// The thread of a device: it goes through the device's list, acquires and releases its memory position by position,
// posts its transfers in the mailbox and has the device execute the other tasks.
#pragma once

#include "exec/engine/arena.h"
#include "exec/engine/device.h"
#include "exec/engine/guards.h"
#include "exec/system/disturbance.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pw {

class DeviceThread {
public:
    DeviceThread(RunPlan& plan, Device& work, int device, const RunOptions& options)
        : plan_(plan), work_(work), device_(device), options_(options) {}

    void make_memory();  // called when the buffers are planned
    void set_mailbox(Mailbox& mailbox) { mailbox_ = &mailbox; }

    // Runs the list once. Returns the interval in which each task ran, in list order.
    const std::vector<Interval>& run_step(int step);
    void end_step();

    const Arena& arena() const { return *arena_; }
    std::vector<MemorySample> take_samples() { return std::exchange(samples_, {}); }  // samples of the last step
    double cpu_share() const { return core_clock_.share(); }  // over a sample of the tasks that are long enough

private:
    void begin_step(int step);
    void wait_for_transfer(int node);
    void wait_for_exchange(int position);
    void pass_copy(const Task& task, int position);
    void launch(const Task& task, int position);
    void wait_for_all();
    Interval interval_of(int position);
    int node_of(int position) const { return plan_.graph.node(device_, position); }
    bool is_persistent(const Buffer& buffer) const;
    void acquire(int position);
    void release(int position, Ns now);

    RunPlan& plan_;
    Device& work_;
    const int device_;
    const RunOptions& options_;
    Mailbox* mailbox_ = nullptr;
    std::optional<Arena> arena_;
    std::optional<Guards> guards_;
    std::vector<std::vector<int>> first_uses_, last_uses_;  // [position] -> buffers
    std::vector<std::vector<int>> offloads_after_;          // [position of F] -> nodes of OFFLOADs
    std::vector<int> stores_;                               // nodes of STOREs
    std::vector<Interval> intervals_;
    std::vector<MemorySample> samples_;
    std::vector<int> sample_of_;  // [position] of this step, -1 where nothing changed
    int step_ = 0;
    CoreClock core_clock_;
    Ns last_task_ = 0;              // how long the last task took
    Ns reached_ = 0, clocked_ = 0;  // ends of the last task and of the last that was clocked
};

}  // namespace pw

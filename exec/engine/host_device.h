// A device of this process: a Backend that calls its work in the calling thread, lends its memory position
// by position and hands its transfers to the mailbox.
#pragma once

#include "exec/disturbance.h"
#include "exec/engine/arena.h"
#include "exec/engine/guards.h"
#include "exec/engine/host_work.h"

#include <optional>
#include <utility>
#include <vector>

namespace pw {

class HostDevice : public Backend {
public:
    HostDevice(HostPlan& plan, DeviceWork& work, int device, const RunOptions& options)
        : plan_(plan), work_(work), device_(device), options_(options) {}

    void make_memory();  // needs the planned buffers
    void set_mailbox(Mailbox& mailbox) { mailbox_ = &mailbox; }

    void begin_step(int step) override;
    Ticket launch(const Task& task, int position, std::span<const Ticket> after) override;
    void all_launched() override;
    Interval finish(Ticket ticket) override;
    void end_step();  // all tickets are finished

    const Arena& arena() const { return *arena_; }
    std::vector<MemorySample> take_samples() { return std::exchange(samples_, {}); }  // of the step
    double cpu_share() const { return core_clock_.share(); }  // of tasks that are worth a look at the clock

private:
    int node_of(int position) const { return plan_.graph.node(device_, position); }
    bool is_persistent(const Buffer& buffer) const;
    void lend(int position);
    void give_back(int position, Ns now);

    HostPlan& plan_;
    DeviceWork& work_;
    const int device_;
    const RunOptions& options_;
    Mailbox* mailbox_ = nullptr;
    std::optional<Arena> arena_;
    std::optional<Guards> guards_;
    std::vector<std::vector<int>> born_, dies_;  // [position] -> buffers
    std::vector<Interval> intervals_;
    std::vector<MemorySample> samples_;
    std::vector<int> sample_of_;  // [position] of this step; -1: nothing changed there
    int step_ = 0;
    CoreClock core_clock_;
    Ns last_task_ = 0;  // how long it took
};

}  // namespace pw

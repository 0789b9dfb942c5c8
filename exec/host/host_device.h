// A device that is a group of pinned cores: a Backend that works in the calling thread.
#pragma once

#include "exec/backend.h"
#include "exec/execute.h"
#include "exec/host/arena.h"
#include "exec/host/mailbox.h"
#include "exec/host/stage_program.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace pw {

// What the devices of a run share. Every row has one writer; readers come after the gate or a SEND.
struct SharedRun {
    const Job& job;
    const HostKernels& kernels;
    const Dataset& data;
    PlanGraph graph;
    Mailbox mailbox;
    std::vector<LayerBytes> layer_bytes;  // by layer
    std::vector<EdgeBytes> edges;
    std::vector<Buffer> buffers;
    Packing packing;
    std::vector<std::vector<std::byte*>> landing_forward, landing_backward;  // [edge][micro-batch]
    std::vector<std::vector<double>> losses;                                 // [step][micro-batch], sums over samples
    std::vector<std::vector<double>> squares;                                // [update][layer], of the gradients
    bool dump = false;
    // Of the first update, when dumping: [device]
    std::vector<std::vector<NamedTensor>> initial, gradients, updated;

    SharedRun(const Job& the_job, const HostKernels& the_kernels, const Dataset& the_data);
    int per_update() const;
    std::int64_t first_sample(int step, int microbatch) const;
};

class HostDevice : public Backend {
public:
    HostDevice(SharedRun& shared, int device);

    // In this order, on the device's own thread; all devices finish one before any begins the next.
    void make_programs();  // fills shared.layer_bytes
    void make_memory();    // needs shared.buffers; fills landing buffers and weights

    void begin_step(int step) override;
    Ticket launch(const Task& task, int position, std::span<const Ticket> after) override;
    Interval finish(Ticket ticket) override { return intervals_[ticket]; }

    StageProgram& program(int stage) { return *programs_.at(stage); }
    const Arena& arena() const { return *arena_; }
    const std::vector<MemorySample>& samples() const { return samples_; }
    std::vector<NamedTensor> parameters() const;  // newest, with statistics

private:
    struct StageState {
        std::vector<std::byte*> slots;  // weight buffers
        std::vector<int> slot_of;       // version -> slot
        std::byte *statistics = nullptr, *gradients = nullptr, *momentum = nullptr;
        int newest = 0;                                  // version, within the plan
        bool input_begun = false, weight_begun = false;  // a gradient was written since the last U
        std::vector<std::byte*> data, until_input, until_weight, gradient_kept;  // [micro-batch]
        Places places;
    };
    void lend(int position);
    void give_back(int position, Ns now);
    void place_buffer(const Buffer& buffer, std::byte* address);
    const Places& bind(const Task& task, int version);
    void compute(const Task& task);
    void update(const Task& task);
    Interval run_task(const Task& task, int node);

    SharedRun& shared_;
    const int device_;
    std::map<int, std::unique_ptr<StageProgram>> programs_;  // by stage
    std::map<int, StageState> stages_;
    std::optional<Arena> arena_;
    std::byte* workspace_ = nullptr;
    std::vector<std::vector<int>> born_, dies_;  // [position] -> buffers
    std::vector<Interval> intervals_;
    std::vector<MemorySample> samples_;
    std::vector<int> labels_;
    int step_ = 0;
};

}  // namespace pw

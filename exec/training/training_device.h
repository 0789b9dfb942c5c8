// A device that computes: it runs the stages of a model with kernels. Letters stand for tasks: F the forward, S the sum
// of gradients over the holders of a stage, U the optimizer update.
#pragma once

#include "exec/engine/device.h"
#include "exec/training/batch_data.h"
#include "exec/training/bucket_thread.h"
#include "exec/training/bucketed_sum.h"
#include "exec/training/fetch.h"
#include "exec/training/gradient_sum.h"
#include "exec/training/held_stage.h"
#include "exec/training/host_blocks.h"
#include "exec/training/kept_state.h"
#include "exec/training/optimizer.h"
#include "exec/training/shared_array.h"
#include "exec/training/statistics_gather.h"

#include <memory>
#include <optional>
#include <vector>

namespace pw {

class Training;

class TrainingDevice : public Device, public Peers {
public:
    TrainingDevice(Training& run, int device);

    void prepare() override;
    std::unique_ptr<Memory> reserve(Bytes bytes) override;
    void place(const Buffer& buffer, std::byte* address) override;
    void begin() override;
    void begin_step(int step) override;
    void wait_at_barrier(const Task& task, int node) override;
    void run(const Task& task, int node) override;
    void has_run(int node) override;
    void end_step() override;
    void keep_state() override { kept_->keep(works_at_once()); }

    const Kernels& kernels() const { return *kernels_; }
    StageMemory& memory(int stage) { return stages_.at(stage).memory; }
    const StageMemory& memory(int stage) const { return stages_.at(stage).memory; }
    std::vector<NamedTensor> parameters() const { return kept_->newest_parameters(); }
    bool has_kept() const { return kept_->is_kept(); }
    HostCopies* copies() override { return copies_.get(); }
    DeviceState kept_state();                         // called once, on any thread
    LayerBytes bytes_of(int layer, bool last) const;  // `last`: for a smaller last micro-batch
    // Write and read the addresses that other ranks need for fetches.
    void write_addresses(Message& message) const;
    void read_addresses(MessageReader& message);
    // Returns whether the bytes are in the memory that reserve() returned.
    bool owns(const std::byte* from, Bytes bytes) const;
    // The requested copies that this device's kernels cannot make. fetch() does them.
    std::vector<Fetch>& fetches() { return fetches_; }
    Bytes room() const { return sums_ ? sums_->reserved() : 0; }  // for fetched summands, outside the planned memory
    // Runs F once more, with `tensors` by edge. Returns the first layer whose output is not finite, or -1 if there
    // is none. It is for kernels whose work is done when a call returns. It may be called on any thread while no
    // device works.
    int first_not_finite(const Task& forward, const std::vector<std::byte*>& tensors);
    bool has_finite_parameters(const Task& forward, int layer);

    const StageMemory& memory_of(int device, int stage) const override;
    void arrive(int node, int round) override;
    bool reads(int device) const override;
    void copy(int device, const std::byte* from, std::byte* to, Bytes bytes) override;
    void fetch(int node) override;

protected:
    virtual std::shared_ptr<const Kernels> open();       // called on the device's thread
    virtual bool works_at_once() const { return true; }  // whether the work of run() is done when it returns
    static constexpr int kRounds = 5;                    // the largest number of waits of arrive() per node
    void note_gradients(const Task& task);               // that it writes
    const HostBlocks& host_blocks() const { return *host_blocks_; }  // if its list has copies
    const int device_;

private:
    void check_last_program(int stage) const;
    StageProgram& program_of(const Task& task) const;
    StageProgram::Values initial_values() const;
    GradientPart& part_of(const Task& task);
    const std::byte* weights_for(const Task& task, int version);
    const Places& bind(const Task& task, int version);
    void bind_earlier(const Task& task);
    void compute(const Task& task, int node);
    void open_bucket_thread() const;
    BucketedSum* buckets_of_sum(const Task& sum) {
        return stages_.at(sum.stage).share.buckets > 1 ? &*buckets_ : nullptr;
    }

    Training& run_;
    const bool trains_;  // whether the plan trains: F is of a training, not of an evaluation
    std::shared_ptr<const Kernels> kernels_;
    HeldStages stages_;
    BatchData batch_;
    SharedArray<double> squares_;  // memory of the rank's record, on its first device
    std::byte* workspace_ = nullptr;
    const std::byte* memory_ = nullptr;  // all memory reserved for buffers
    Bytes memory_bytes_ = 0;
    int step_ = 0;
    std::vector<Fetch> fetches_;
    // Set by begin().
    std::optional<StatisticsGather> statistics_;
    std::optional<GradientSum> sums_;
    std::optional<Optimizer> optimizer_;
    std::optional<KeptState> kept_;
    std::optional<BucketedSum> buckets_;           // if S may be bucketed
    std::optional<HostBlocks> host_blocks_;        // if its list has copies
    std::unique_ptr<BucketThread> bucket_thread_;  // uses all of the above
    std::unique_ptr<CopyThreads> copies_;          // the same. Null without copies, and if a queue makes them
};

}  // namespace pw

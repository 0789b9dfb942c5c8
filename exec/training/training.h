// Devices that compute: they run the stages of a model with kernels. Letters stand for tasks: F the forward, S the sum
// of gradients over the holders of a stage, U the optimizer update.
#pragma once

#include "exec/engine/device.h"
#include "exec/training/batch_statistics.h"
#include "exec/training/bucket_thread.h"
#include "exec/training/extent.h"
#include "exec/training/fetch.h"
#include "exec/training/layouts.h"
#include "exec/training/record.h"
#include "exec/training/stage_program.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

class Training;

// The gradients that some backward tasks of a stage have added up since the last U.
struct GradientPart {
    std::byte* block = nullptr;
    Begun begun;
};

class TrainingDevice : public Device {
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
    void keep_state() override;

    const Kernels& kernels() const { return *kernels_; }
    std::vector<NamedTensor> parameters() const;  // newest; with statistics where it speaks for the stage
    // What a checkpoint has of a device.
    struct State {
        std::vector<NamedTensor> parameters, momenta;
    };
    bool has_kept() const { return has_kept_; }
    State kept_state();                               // once, on any thread
    LayerBytes bytes_of(int layer, bool last) const;  // of a layer held here; `last`: in a smaller last micro-batch
    // Returns the statistics as F leaves them on this device; null where it does not.
    std::byte* statistics_of(int stage, int microbatch) const { return stages_.at(stage).left_statistics[microbatch]; }
    // The devices of an S read each other's gradients while they meet.
    std::span<const GradientPart> gradients_of(int stage) const { return stages_.at(stage).parts; }
    std::byte* weights_of(int stage, int version) const;
    // What other ranks must know of a device: addresses on its rank, which fetches name, and which gradients have
    // begun.
    void write_addresses(Message& message);
    void read_addresses(MessageReader& message);
    void write_begun(int stage, Message& message) const;
    void read_begun(int stage, MessageReader& message);
    // Whether the bytes are in the memory that reserve() gave.
    bool owns(const std::byte* from, Bytes bytes) const;
    // The fetches are copies that this device needs of memory that its kernels cannot read; fetch() takes them up.
    std::vector<Fetch>& fetches() { return fetches_; }
    const std::vector<Fetch>& fetches() const { return fetches_; }
    Bytes room() const {
        return room_ ? room_->size() : 0;
    }  // beside the planned memory, for what is fetched to be added
    // Runs F once more, with `tensors` by edge. It returns the first layer whose output is not finite, or -1 where
    // there is none. It is for kernels whose work is done when a call returns, on any thread, when no device works.
    int first_not_finite(const Task& forward, const std::vector<std::byte*>& tensors);
    bool has_finite_parameters(const Task& forward, int layer);

protected:
    virtual std::shared_ptr<const Kernels> open();  // called on the device's thread
    // Meets the others of an S or U for the round-th time, from 0. What was done or queued before is done before what
    // any of them does afterwards.
    virtual void arrive(int node, int round);
    virtual bool works_at_once() const { return true; }  // whether the work of run() is done when it returns
    // Tells whether kernels here read the memory of another device; else a sum fetches it.
    virtual bool reads(int device) const;
    // Is called by all devices of an S: what they have asked for is there before anything that they do next.
    virtual void fetch(int node);
    // Tells whether the holders add up a stage in an order that is none of ours: then each adds up its own gradients,
    // and reduce() adds up those of all.
    virtual bool reduces(int /*stage*/) const { return false; }
    virtual void reduce(int /*node*/) {}  // called by all devices of an S
    std::vector<Fetch> fetches_;
    static constexpr int kRounds = 5;
    const int device_;

private:
    struct StageState {
        std::vector<int> holders;  // devices
        // The device's part of the stage: what it adds up in S, and, where the optimizer is sharded, what it updates.
        // Then it wants the sums of some other bytes, too: `wanted`.
        Extent all, part;
        std::size_t number = 0;  // of the device among the holders
        bool is_sharded = false;
        int buckets = 1;  // in which S sums; where these are several, a thread beside the device's does that
        std::vector<Extent> wanted;
        std::vector<std::byte*> slots;    // weight buffers
        std::vector<int> slot_of;         // version -> slot
        std::vector<std::byte*> momenta;  // by slot; the first serves all unless the stage predicts weights; of a part
                                          // where the optimizer is sharded
        std::byte *statistics = nullptr, *predicted = nullptr;
        std::vector<std::byte*> left_statistics;     // [micro-batch], left by F
        std::vector<std::byte*> fetched_statistics;  // [micro-batch]; null where they are read as F leaves them
        std::unique_ptr<Memory> statistics_room;
        StatisticsTable batches;
        std::vector<GradientPart> parts;  // S and U leave the sum in the first
        int newest = 0;                   // number of the newest version, within the plan
        bool summed = false;              // whether they are summed since the last U
        bool saves = false;               // whether what its F saves is read back
        std::vector<std::byte*> data, until_input, until_weight, gradient_kept, dropped;  // [micro-batch]
        Places places;
    };
    StageState& state_of(int stage);
    StageProgram& add_program(int stage, int samples, std::map<int, std::unique_ptr<StageProgram>>& to) const;
    void check_last_program(int stage) const;
    StageProgram& program_of(const Task& task) const;
    StageProgram::Values initial_values() const;
    void list_statistics();
    void gather_statistics(const Task& closing);
    const Places& bind(const Task& task, int version);
    GradientPart& part_of(const Task& task);
    const std::byte* weights_for(const Task& task, int version);
    void load_data(int microbatch, std::byte* to) const;
    void compute(const Task& task, int node);
    std::vector<NamedTensor> named(int stage, const std::byte* weights, bool trained_only) const;
    // The following are in exec/training/kept_state.cpp.
    struct Blocks {  // of a stage; null where the device has none
        const std::byte *weights = nullptr, *statistics = nullptr, *momentum = nullptr;
    };
    std::map<int, Blocks> newest() const;  // by stage
    void reserve_kept();
    template <class Act>
    void for_kept(const std::map<int, Blocks>& from, Act act) const;
    std::vector<NamedTensor> parameters_in(const std::map<int, Blocks>& blocks) const;
    std::vector<NamedTensor> momenta_in(const std::map<int, Blocks>& blocks) const;
    bool holds(int stage) const { return stages_.contains(stage); }
    std::vector<std::byte*> readable_statistics(int stage);
    void take_statistics(const Task& closing);
    // The following are in exec/training/update.cpp.
    void list_parts(int stage);
    void resume_momenta(int stage);
    void update(const Task& task, int node);
    void begin_update(const Task& task);
    void take_weights(int stage);
    void end_update(const Task& task);
    bool is_kept(const Task& update) const;
    std::byte* next_momentum(int stage) const;
    void measure(int stage, double* squares) const;
    // The following are in exec/training/buckets.cpp.
    void list_buckets(int stage);
    Extent bucket_of(int stage, int number) const;
    void open_bucket_thread() const;
    void sum_in_buckets(int node);
    void wait_for_last_bucket(int node);
    void wait_for_buckets(int node);
    // The following are in exec/training/gradient_sums.cpp.
    void make_room();
    void sum_gradients(int node);
    Extent share_in(const StageState& state, const Extent& bucket, std::size_t number) const;
    void list_share(int stage, const Extent& bucket);
    void copy_shares(int stage, const Extent& bucket);
    void list_share(const SharedTable& table);
    void copy_shares(const SharedTable& table);
    const std::byte* readable(int device, const std::byte* block, Bytes bytes);
    void take(int device, const std::byte* from, std::byte* to, Bytes bytes);
    void add_up();
    void complete_gradients(int stage);
    void measure(const Task& update);
    std::span<double> squares_of(const Task& update) const;
    template <class Note>
    std::span<const Note> of_microbatch(const Note* all, int per_sample, int microbatch) const;
    // Makes an array in shared memory: [micro-batch][sample], labels [micro-batch][sample][position], [micro-batch], or
    // [update of a step][layer].
    template <class Value>
    Value* make_notes(std::size_t count);

    Training& run_;
    std::shared_ptr<const Kernels> kernels_;
    std::vector<std::unique_ptr<Memory>> notes_;
    Sample* samples_ = nullptr;
    int* labels_ = nullptr;
    double *losses_ = nullptr, *clip_factor_ = nullptr;
    struct Addition {
        std::vector<const std::byte*> from;  // summands, in this order
        std::byte* to = nullptr;
        Bytes bytes = 0;
    };
    Addition& next_addition(std::byte* to, Bytes bytes);
    std::vector<Addition> additions_;
    std::size_t listed_ = 0;  // so many of them
    std::unique_ptr<Memory> room_;
    Bytes used_ = 0;  // bytes of room_ in use
    // The programs are by stage; where the last micro-batch of a mini-batch is smaller, last_programs_ has its own
    // programs.
    std::map<int, std::unique_ptr<StageProgram>> programs_, last_programs_;
    std::map<int, StageState> stages_;
    std::byte* workspace_ = nullptr;
    std::optional<State> kept_;            // where work is queued, else
    std::unique_ptr<Memory> kept_memory_;  // for all of these
    std::map<int, Blocks> kept_blocks_;
    bool has_kept_ = false;
    const std::byte* memory_ = nullptr;  // all that was reserved for buffers
    Bytes memory_bytes_ = 0;
    int step_ = 0;
    std::map<int, int> sums_behind_;               // the pass that makes the last gradients of a bucketed S -> S
    std::unique_ptr<BucketThread> bucket_thread_;  // where S may be bucketed; uses all of the above
};

// Returns one tensor of each name. It throws Error (RunFailed) naming a parameter whose copies differ.
std::vector<NamedTensor> without_copies(std::vector<std::vector<NamedTensor>> by_device);
// Does the same for tensors of which every device has a part, and zeros elsewhere.
std::vector<NamedTensor> joined_parts(std::vector<std::vector<NamedTensor>> by_device);

// A training has all devices of a run, and what they share: the data, the layouts of their blocks and the record.
class Training : public Devices {
public:
    Training(const RunPlan& the_plan, const RunOptions& options);
    void add_devices();

    Device& device(int number) override { return *devices_[number]; }
    Costs prepare_memory() override;
    bool computes() const override { return true; }
    bool uses_cores() const override;
    std::string machine() const override { return any_device().kernels().machine(); }
    void leave(int send) override;  // the tensor goes from the sender's copy to its landing buffer
    void arrive(int) override {}
    std::span<std::byte> message(int transfer) override;
    void write_addresses(Message& message) const override;
    void read_addresses(int rank, MessageReader& message) override;
    void write_step(Message& message) const override;
    void read_step(int rank, MessageReader& message) override;
    double loss(int microbatch) const override { return record_.losses()[static_cast<std::size_t>(microbatch)]; }
    std::vector<double> gradient_norms() const override { return record_.gradient_norms(); }
    void check_numbers(int step) const override;
    void explain() override;
    void take_state() override;
    DeviceStates make_state() override;
    void save(DeviceStates all, Checkpoint& checkpoint) const override;
    void finish(RunResult& result) override;
    void write_files(const RunResult& result) override;

    const TrainingDevice& kernel_device(int number) const { return *devices_[number]; }
    const TrainingDevice& any_device() const { return *devices_[plan.devices_of_rank(plan.map.own()).front()]; }
    // What ranks do at a barrier: they tell each other what its devices need to know, and send what has been asked for.
    const Barriers::RankAction& synchronise_ranks() const { return synchronise_ranks_; }
    const Barriers::RankAction& fetches_across() const { return fetches_across_; }
    std::byte* gradient_of(int device, int layer) const;  // the layer's part of the stage's first block
    bool shards(int stage) const;                         // whether its holders share out the optimizer's states
    // Tells whether the sums of a device's stage go on beside it in buckets.
    bool sums_beside(int device) const;
    // Returns the device that measures a layer's gradient: who speaks for the stage, or, where the stage is sharded,
    // whose part the layer begins in.
    int measurer_of(int layer) const { return measurers_[static_cast<std::size_t>(layer)]; }
    const Layouts& layouts() const { return *layouts_; }  // known after prepare_memory()
    Record& record() { return record_; }
    const Record& record() const { return record_; }
    std::int64_t first_sample(int step, int microbatch) const;
    Sample sample(std::int64_t index) const;  // evaluation shows images as they are stored
    // Refuses the loss of a micro-batch whose F has just been run: it throws, and explain() tells more when all have
    // stopped.
    [[noreturn]] void refuse_loss(int step, int microbatch);

    // What a layer starts from where a training goes on: values that LayerKernel::load takes.
    std::vector<std::vector<float>> resumed_parameters(int layer) const;
    std::vector<std::vector<float>> resumed_momenta(int layer) const;  // zeros for what has none

    const RunPlan& plan;
    const Job& job;
    const Dataset data;

protected:
    // Takes up what the devices of this rank want, tells other ranks what of it is theirs, and hears what they want.
    // Returns all that has an end here; where the other rank wants it, there is no `to`.
    std::vector<Fetch> fetches_with(const Barrier& barrier, const std::vector<int>& others, int tag);
    std::vector<std::unique_ptr<TrainingDevice>> devices_;

private:
    std::vector<LayerBytes> layer_bytes(bool last) const;  // by layer, from the devices that speak for the stages
    std::vector<StageLayout> layouts_at(int samples, const std::vector<LayerBytes>& bytes) const;
    Costs costs_of(const std::vector<StageLayout>& layouts, const std::vector<LayerBytes>& bytes) const;
    std::vector<NamedTensor> parameters() const;  // those of all devices, newest, each once
    std::vector<int> find_measurers() const;
    std::string place_of(int step, int microbatch) const;
    // Waits until the squares that devices of this rank have measured before they meet are in the record.
    virtual void wait_for_squares(const Barrier&) {}
    // The following are in exec/training/across_ranks.cpp.
    void synchronise_ranks_at(const Barrier& barrier, const std::vector<int>& others, int tag);
    void fetch_from_ranks(const Barrier& barrier, const std::vector<int>& others, int tag);
    template <class Act>
    void for_told(const Barrier& barrier, int rank, Act act) const;
    void write_squares(Message& message, int device, int stage, int update) const;
    void read_squares(MessageReader& message, int device, int stage, int update);
    std::vector<LayerBytes> of_all_ranks(std::vector<LayerBytes> own) const;  // those of speakers on this rank
    // Returns those of all devices on rank 0.
    std::vector<std::vector<NamedTensor>> of_all_ranks(std::vector<std::vector<NamedTensor>> by_device) const;
    void write_states(Message& message, const DeviceStates& own) const;
    void read_states(const Message& message, int rank, DeviceStates& all) const;
    Barriers::RankAction synchronise_ranks_, fetches_across_;
    std::vector<NamedTensor> written_;  // parameters at the end, where they are saved
    std::map<std::string_view, const NamedTensor*> resumed_parameters_, resumed_momenta_;  // by name
    const std::string dump_, save_;
    Record record_;
    std::optional<const Layouts> layouts_;
    std::vector<int> measurers_;     // by layer
    std::mutex not_finite_mutex_;    // protects what follows
    std::optional<int> not_finite_;  // the first micro-batch whose loss is not finite
    int step_not_finite_ = 0;
};

}  // namespace pw

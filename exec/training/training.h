// A run whose devices compute, and the data that they share: the data set, the layouts of their blocks and the
// record.
#pragma once

#include "exec/engine/device.h"
#include "exec/training/fetch.h"
#include "exec/training/layouts.h"
#include "exec/training/record.h"
#include "exec/training/training_device.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns one tensor of each name. Throws Error (RunFailed) that names a parameter whose copies differ.
std::vector<NamedTensor> without_copies(std::vector<std::vector<NamedTensor>> by_device);
// Does the same for tensors of which every device has a part and zeros elsewhere.
std::vector<NamedTensor> joined_parts(std::vector<std::vector<NamedTensor>> by_device);

class Training : public Devices {
public:
    Training(const RunPlan& the_plan, const RunOptions& options);
    void add_devices();

    Device& device(int number) override { return *devices_[number]; }
    Costs prepare_memory() override;
    bool computes() const override { return true; }
    bool uses_cores() const override;
    std::string machine() const override { return any_device().kernels().machine(); }
    void leave(int send) override;  // copies the tensor from the sender's copy to its landing buffer
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
    // The actions of ranks at a barrier: they exchange the requests of their devices, and send the requested bytes.
    const Barriers::RankAction& synchronise_ranks() const { return synchronise_ranks_; }
    const Barriers::RankAction& fetches_across() const { return fetches_across_; }
    const Layouts& layouts() const { return *layouts_; }  // set by prepare_memory()
    Record& record() { return record_; }
    const Record& record() const { return record_; }
    std::int64_t first_sample(int step, int microbatch) const;
    Sample sample(std::int64_t index) const;  // not augmented in an evaluation
    // Throws because the loss that an F has just computed is not finite. explain() finds the layer when all threads
    // have stopped.
    [[noreturn]] void refuse_loss(int step, int microbatch);

    // The values of a layer in the checkpoint that the training resumes from, as LayerKernel::load takes them.
    std::vector<std::vector<float>> resumed_parameters(int layer) const;
    // The same of a state of the optimizer: zeros for parameters without it, nothing for a frozen layer.
    std::vector<std::vector<float>> resumed_states(int state, int layer) const;

    const RunPlan& plan;
    const Job& job;
    const Model model;  // of a slice, if the plan has slices
    const Dataset data;

protected:
    // Takes the fetches of this rank's devices and exchanges them with the other ranks. Returns all fetches with an
    // end on this rank. `to` is null if another rank has requested it.
    std::vector<Fetch> fetches_with(const Barrier& barrier, const std::vector<int>& others, int tag);
    std::vector<std::unique_ptr<TrainingDevice>> devices_;

private:
    std::vector<LayerBytes> layer_bytes(bool last) const;  // by layer, from the first holders of the stages
    std::vector<StageLayout> layouts_at(int samples, const std::vector<LayerBytes>& bytes) const;
    Costs costs_of(const std::vector<StageLayout>& layouts, const std::vector<LayerBytes>& bytes) const;
    std::vector<NamedTensor> parameters() const;  // the newest of all devices, each once
    std::string place_of(int step, int microbatch) const;
    // Waits until the squares that devices of this rank have measured before the barrier are in the record.
    virtual void wait_for_squares(const Barrier&) {}
    // The following are in exec/training/across_ranks.cpp.
    void synchronise_ranks_at(const Barrier& barrier, const std::vector<int>& others, int tag);
    void fetch_from_ranks(const Barrier& barrier, const std::vector<int>& others, int tag);
    template <class Act>
    void for_stages_at(const Barrier& barrier, int rank, Act act) const;
    void write_squares(Message& message, int device, int stage, int update) const;
    void read_squares(MessageReader& message, int device, int stage, int update);
    std::vector<LayerBytes> of_all_ranks(std::vector<LayerBytes> own) const;  // from each stage's first holder
    // Returns the tensors of all devices on rank 0.
    std::vector<std::vector<NamedTensor>> of_all_ranks(std::vector<std::vector<NamedTensor>> by_device) const;
    void write_states(Message& message, const DeviceStates& own) const;
    void read_states(const Message& message, int rank, DeviceStates& all) const;
    Barriers::RankAction synchronise_ranks_, fetches_across_;
    std::vector<NamedTensor> written_;  // parameters at the end, if they are saved
    std::map<std::string_view, const NamedTensor*> resumed_parameters_, resumed_states_;  // by name
    const std::string dump_, save_;
    Record record_;
    std::optional<const Layouts> layouts_;
    std::mutex not_finite_mutex_;    // protects the members below
    std::optional<int> not_finite_;  // the first micro-batch whose loss is not finite
    int step_not_finite_ = 0;
};

}  // namespace pw

// Devices that compute: stages of a model run by kernels.
#pragma once

#include "exec/host/host_work.h"
#include "exec/host/stage_program.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pw {

class KernelWork;

class KernelDevice : public DeviceWork {
public:
    KernelDevice(KernelWork& run, int device) : device_(device), run_(run) {}

    void prepare() override;
    std::unique_ptr<Memory> reserve(Bytes bytes) override;
    void place(const Buffer& buffer, std::byte* address) override;
    void begin() override;
    void begin_step(int step) override;
    void run(const Task& task, int node) override;
    void end_step() override;

    const Kernels& kernels() const { return *kernels_; }
    std::vector<NamedTensor> parameters() const;  // newest, with statistics

protected:
    virtual std::shared_ptr<const Kernels> open();  // on the device's thread
    const int device_;

private:
    struct StageState {
        std::vector<std::byte*> slots;  // weight buffers
        std::vector<int> slot_of;       // version -> slot
        std::byte *statistics = nullptr, *gradients = nullptr, *momentum = nullptr;
        int newest = 0;                                  // version, within the plan
        bool input_begun = false, weight_begun = false;  // a gradient was written since the last U
        bool saves = false;                              // its F is read back
        std::vector<std::byte*> data, until_input, until_weight, gradient_kept, dropped;  // [micro-batch]
        Places places;
    };
    StageState& state_of(int stage);
    const Places& bind(const Task& task, int version);
    void compute(const Task& task);
    void update(const Task& task);
    template <class Note>
    std::span<const Note> of_microbatch(const Note* all, int per_sample, int microbatch) const;
    // Shared memory, [micro-batch][sample], labels [micro-batch][sample][position], [micro-batch],
    // [update of a step][layer].
    template <class Value>
    Value* make_notes(std::size_t count);

    KernelWork& run_;
    std::shared_ptr<const Kernels> kernels_;
    std::vector<std::unique_ptr<Memory>> notes_;
    Sample* samples_ = nullptr;
    int* labels_ = nullptr;
    double *losses_ = nullptr, *squares_ = nullptr;
    std::map<int, std::unique_ptr<StageProgram>> programs_;  // by stage
    std::map<int, StageState> stages_;
    std::byte* workspace_ = nullptr;
    int step_ = 0;
};

// Rows have one writer; readers come after the gate or a SEND.
class KernelWork : public HostWork {
public:
    KernelWork(const HostPlan& the_plan, const RunOptions& options);
    void add_devices();

    DeviceWork& device(int number) override { return *devices_[number]; }
    Costs costs() override;
    bool computes() const override { return true; }
    std::string machine() const override { return devices_.front()->kernels().machine(); }
    void leave(int send) override;  // the tensor goes from the sender's copy to its landing buffer
    void arrive(int) override {}
    double loss(int step, int microbatch) const override { return losses[step][microbatch]; }
    void finish(RunResult& result) override;

    std::int64_t first_sample(int step, int microbatch) const;
    Sample sample(std::int64_t index) const;  // evaluation shows images as they are stored
    bool dumps() const { return !dump_.empty(); }

    const HostPlan& plan;
    const Job& job;
    const Dataset data;
    std::vector<LayerBytes> layer_bytes;       // by layer
    std::vector<StageLayout> layouts;          // by stage
    std::vector<std::vector<double>> losses;   // [step][micro-batch], sums over samples
    std::vector<std::vector<double>> squares;  // [update][layer], of the gradients
    // Of the first update, when dumping: [device]
    std::vector<std::vector<NamedTensor>> initial, gradients, updated;

protected:
    std::vector<std::unique_ptr<KernelDevice>> devices_;

private:
    const std::string dump_;
};

}  // namespace pw

// Emulated devices: they have real threads, lists, lanes and memory plans, but a task sleeps for the time of its
// costs, and 64-bit tags replace tensors. A tag depends on the micro-batches and weights from which it was made:
// two runs with equal weights have done the same work.
#pragma once

#include "exec/engine/device.h"
#include "exec/system/threads.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pw {

class Emulation;

class EmulatedDevice : public Device {
public:
    EmulatedDevice(Emulation& run, int device);

    void prepare() override;
    std::unique_ptr<Memory> reserve(Bytes bytes) override;
    void place(const Buffer&, std::byte*) override {}  // memory is counted, never accessed
    void begin() override {}
    void begin_step(int step) override;
    void wait_at_barrier(const Task& task, int node) override;
    void wait_for_dispatcher(int node) override;
    void run(const Task& task, int node) override;
    HostCopies* copies() override { return copies_.get(); }

    std::uint64_t weights(int stage) const;  // of the newest version

private:
    // A part is the sum of some backward tasks since the last U, the optimizer update. S is the sum of gradients
    // over the holders of a stage.
    struct Part {
        std::uint64_t sum = 0;
        bool begun = false;
    };
    struct StageState {
        std::vector<std::uint64_t> weights;  // by slot
        std::vector<int> slot_of;            // version -> slot
        int newest = 0;
        std::vector<Part> parts;
        std::uint64_t sum = 0;                         // made by S of the parts of all holders and tied stages
        bool summed = false;                           // whether S has run since the last U
        std::vector<std::uint64_t> forward, gradient;  // [micro-batch]
    };
    void forward(const Task& task);
    std::uint64_t weights_for(const Task& task, int version) const;  // predicted from the version if the plan predicts
    std::uint64_t activation_of(const Task& task) const;             // saved by F (forward), or by R (recompute)
    void backward_input(const Task& task);
    void backward_weight(const Task& task);
    void sum_gradients(int node);
    std::uint64_t sum_of_holders(int stage) const;
    std::uint64_t gradient_of(const StageState& state) const { return state.summed ? state.sum : state.parts[0].sum; }
    void update(const Task& task);

    Emulation& run_;
    const int device_;
    std::map<int, StageState> stages_;
    int step_ = 0;
    std::unique_ptr<CopyThreads> copies_;  // null without copies
};

// Issues the calls of a host's devices one at a time, in the order of their requests.
class Dispatcher {
public:
    void acquire();  // waits until all earlier requests are served, returns at once after stop()
    void release();
    void stop();

private:
    Mutex mutex_;
    Condition changed_;
    std::int64_t requested_ = 0, served_ = 0;
    bool stopped_ = false;
};

class Emulation : public Devices {
public:
    explicit Emulation(const RunPlan& the_plan);

    Device& device(int number) override { return *devices_[number]; }
    Costs prepare_memory() override { return job.costs; }
    bool computes() const override { return false; }
    std::string machine() const override;
    void leave(int send) override;
    void arrive(int recv) override;
    std::span<std::byte> message(int) override { return {}; }  // all devices are on one rank
    double loss(int microbatch) const override { return losses[static_cast<std::size_t>(microbatch)]; }
    std::vector<double> gradient_norms() const override;
    void finish(RunResult& result) override;
    void stop() override;
    // Returns the dispatcher that issues the call of a task, or null if the device has its own dispatcher, or if the
    // task is the second task of a launch.
    Dispatcher* dispatcher_of(int node) const;
    // Writes the tag of a tensor (or gradient) at both ends of the buffer that its maker writes.
    void write(bool is_forward, int edge, int microbatch, std::uint64_t tag);
    // Reads the tag in the landing buffer. Throws Error (RunFailed) that names reader and maker if it is not the
    // tag that was sent.
    std::uint64_t read(bool is_forward, int edge, const Task& reader) const;
    void sleep_until(Ns moment) const;  // on clock_now()
    // Returns when the last bucket of an S is summed. Without buckets, returns when its last input ended. Called when
    // all its devices have arrived.
    Ns buckets_summed(int sum) const;

    const RunPlan& plan;
    const Job& job;
    std::vector<Ns> durations;               // by node
    std::vector<Ns> sum_delays;              // by node
    std::vector<Ns> ended;                   // by node, for passes that compute gradients: the end in this step
    std::vector<double> losses;              // [micro-batch], of this step
    std::vector<std::vector<double>> norms;  // [update][stage], of this step
    std::vector<std::uint64_t> sums;         // [stage], set before a U under a global norm
    const EmulatedDevice& emulated_device(int number) const { return *devices_[number]; }

private:
    // The ends of a buffer, which contain its tag, or null if the buffer is too small for a tag, or absent.
    struct Ends {
        std::byte *start = nullptr, *end = nullptr;
        std::size_t length = 0;
    };
    struct SentTags {
        std::array<std::byte, 64> start{}, end{};
    };
    Ends ends_of(std::byte* buffer, bool is_forward, int edge, int microbatch) const;
    Ends ends_of(const Task& transfer) const;
    std::string note_on_short_tasks() const;

    std::atomic<bool> stopped_{false};
    std::vector<std::vector<std::uint64_t>> tags_[2];       // [forward][edge][micro-batch], as written
    std::vector<SentTags> sent_;                            // by node of the SEND
    std::vector<std::unique_ptr<Dispatcher>> dispatchers_;  // by host
    std::vector<std::unique_ptr<EmulatedDevice>> devices_;
};

}  // namespace pw

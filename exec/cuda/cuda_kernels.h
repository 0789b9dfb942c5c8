// The kernels of a CUDA device. All run on its compute stream.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/kernels.h"

#include <memory>
#include <optional>
#include <vector>

namespace pw::cuda {

class CudaKernels : public Kernels {
public:
    // Opens the device. Call it on the device's own thread.
    CudaKernels(const Seat& seat, Precision precision, bool deterministic, std::shared_ptr<JobGpus> job);
    CudaKernels(const Seat& seat, Precision precision, bool deterministic);  // the kernels of the only device of a job
    ~CudaKernels() override;

    GpuShare& device() const { return *device_; }

    std::string_view name() const override { return "cuda"; }
    std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool reads_data) const override;
    std::unique_ptr<StageKernel> make_stage(const std::vector<StageBlock>& blocks) const override;
    Bytes data_bytes(Dims input, int samples) const override;
    void take_data(const Dataset& data) const override;
    void load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const override;
    void fill(std::byte* to, unsigned char value, Bytes bytes) const override;
    void copy(const std::byte* from, std::byte* to, Bytes bytes) const override;
    void add(const std::byte* from, std::byte* to, Bytes bytes) const override;
    void sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const override;
    void sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const override;
    void clip_factor(std::span<const double> squares, double largest, double* factor) const override;
    void scale(const double* factor, std::byte* gradient, Bytes bytes) const override;
    void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradient,
                const OptimizerStates& states, std::byte* new_weights, Bytes bytes) const override;
    void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                 Bytes bytes) const override;
    std::unique_ptr<Memory> reserve(Bytes bytes, const std::string& whose) const override;
    std::unique_ptr<Memory> shared(Bytes bytes) const override;
    std::string machine() const override { return device_->name(); }
    std::vector<ConvolutionChoice> convolutions() const override;
    bool on_host() const override { return false; }
    bool has_neighbours() const override { return device_->seat().groups > 0; }
    Mark mark() const override;
    Ns time_between(Mark from, Mark to) const override;
    void finish() const override;
    std::unique_ptr<RepeatedCalls> as_one(std::function<void()> calls) const override;

private:
    struct Stored;  // the data set on the device
    Bytes image_bytes(Dims input, std::int64_t samples) const;
    template <class Act>
    void with_block(Bytes bytes, Act act) const;

    std::unique_ptr<GpuShare> device_;
    DeviceMemory factor_;                    // for scale()
    mutable std::optional<bool> pads_data_;  // whether the layers that read data need it padded, set by the first layer
    mutable std::unique_ptr<Stored> stored_;
    mutable std::vector<Event> marks_;                     // the first marks_used_ are recorded
    mutable std::size_t marks_used_ = 0, marks_kept_ = 0;  // kept: by calls as one
    mutable bool captures_ = false;
};

}  // namespace pw::cuda

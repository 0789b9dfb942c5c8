// U, the optimizer update, of a stage: a few kernels update all its layers.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/kernels.h"

#include <vector>

namespace pw::cuda {

struct SgdRule;
struct AdamWRule;

// The blocks of the layers are divided into shares, one per block of threads, which are listed on the device. The
// order of sums depends only on a layer's size.
class StageUpdate : public StageKernel {
public:
    StageUpdate(const GpuShare& device, const std::vector<StageBlock>& blocks);

    void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradients,
                const OptimizerStates& states, std::byte* new_weights, double* squares) const override;
    void measure(const std::byte* gradients, double* squares) const override;
    void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const override;
    void gather_statistics(const BatchStatistics& of, std::byte* running) const override;

private:
    SgdRule rule_of(const Sgd& sgd) const;
    AdamWRule rule_of(const AdamW& adamw) const;  // enqueues the work that makes corrections_
    template <class Rule>
    void update_by(const Rule& rule, const std::byte* weights, const std::byte* gradients,
                   const OptimizerStates& states, std::byte* new_weights, double* squares) const;
    void add_up(double* squares) const;

    const GpuShare& device_;
    std::int64_t shares_ = 0, sums_ = 0, averages_ = 0;  // numbers of entries in the lists
    DeviceMemory share_list_, sum_list_, average_list_, partials_, corrections_;
};

}  // namespace pw::cuda

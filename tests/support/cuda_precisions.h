// The precisions of the cuda backend and their tolerances, for its layer tests.
#pragma once

#include "exec/cuda/cuda_kernels.h"
#include "tests/support/layer_rig.h"

#include <cuda_bf16.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pw {

inline float kept_by_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

inline std::vector<float> random_for(Precision precision, std::int64_t count, unsigned seed) {
    auto values = random_values(count, seed);
    if (precision == Precision::Bf16)
        std::ranges::transform(values, values.begin(), kept_by_bf16);
    return values;
}

inline void fill(LayerRig& rig, Precision precision, unsigned seed) {
    precision == Precision::Bf16 ? rig.fill(seed, kept_by_bf16) : rig.fill(seed);
}

inline std::string case_title(Precision precision) {
    return precision == Precision::Fp32 ? "Fp32" : precision == Precision::Tf32 ? "Tf32" : "Bf16";
}

// Own kernels compute in fp32, and round their results.
inline double tolerance_of(const Layer& layer, Precision precision) {
    const bool is_product = layer.kind == LayerKind::Convolution || layer.kind == LayerKind::Linear;
    if (precision == Precision::Bf16)
        return 1e-2;
    return is_product && precision == Precision::Tf32 ? 1e-3 : 1e-5;
}

inline double squares_of(const std::vector<std::vector<float>>& all) {
    double sum = 0;
    for (const auto& values : all)
        for (const float value : values)
            sum += double{value} * double{value};
    return sum;
}

// The device's kernels, opened once for all cases of a suite.
class KernelsByPrecision {
public:
    const cuda::CudaKernels& of(Precision precision) {
        std::unique_ptr<cuda::CudaKernels>& kernels = all_[precision];
        if (!kernels)
            kernels = std::make_unique<cuda::CudaKernels>(cuda::Seat{}, precision, true);
        return *kernels;
    }
    void close() { all_.clear(); }

private:
    std::map<Precision, std::unique_ptr<cuda::CudaKernels>> all_;
};

}  // namespace pw

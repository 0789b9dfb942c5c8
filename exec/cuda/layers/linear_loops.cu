#include "exec/cuda/layers/linear_loops.h"

#include "exec/cuda/layers/packs.h"

namespace pw::cuda {

namespace {

using Bf16 = __nv_bfloat16;
constexpr int kEight = 8;

template <class T>
__global__ void add_bias_kernel(const float* bias, T* output, std::int64_t outputs, std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        output[i] = rounded<T>(real(output[i]) + bias[i % outputs]);
}

// One thread per output: neighbouring threads read neighbouring values.
template <class T>
__global__ void sum_columns(const T* output_gradient, float* bias_gradient, std::int64_t samples, std::int64_t outputs,
                            std::int64_t padded, bool accumulate) {
    const std::int64_t i = item();
    if (i >= padded)
        return;
    if (i >= outputs) {
        if (!accumulate)
            bias_gradient[i] = 0;
        return;
    }
    float sum = 0;
    for (std::int64_t n = 0; n < samples; ++n)
        sum += real(output_gradient[n * outputs + i]);
    bias_gradient[i] = accumulate ? bias_gradient[i] + sum : sum;
}

template <class T>
__global__ void sum_lines(const T* output_gradient, float* lines, unsigned samples, std::int64_t outputs,
                          unsigned shares, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const std::int64_t share = i / outputs, column = i - share * outputs;
    float sum = 0;
    for_places<8>(
        static_cast<unsigned>(share), shares, samples,
        [&](unsigned n) { return output_gradient[n * outputs + column]; },
        [&](unsigned, T read) { sum += real(read); });
    lines[i] = sum;
}

template <class T>
__global__ void add_made(const Pack<T, kEight>* made, Pack<float, kEight>* gradient, std::int64_t count,
                         std::int64_t items, bool accumulate) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Pack<float, kEight> part = reals(made[i]);
    Pack<float, kEight> sum = {};
    if (accumulate)
        sum = gradient[i];
    for (int k = 0; k < kEight; ++k)
        if (i * kEight + k < count)
            sum.values[k] += part.values[k];
    gradient[i] = sum;
}

}  // namespace

template <class T>
void add_bias(cudaStream_t stream, const float* bias, T* output, std::int64_t samples, std::int64_t outputs) {
    launch(stream, samples * outputs, add_bias_kernel<T>, bias, output, outputs, samples * outputs);
}
template void add_bias<float>(cudaStream_t, const float*, float*, std::int64_t, std::int64_t);
template void add_bias<Bf16>(cudaStream_t, const float*, Bf16*, std::int64_t, std::int64_t);

template <class T>
void sum_bias_gradient(cudaStream_t stream, const T* output_gradient, float* bias_gradient, std::int64_t samples,
                       std::int64_t outputs, std::int64_t padded, bool accumulate) {
    launch(stream, padded, sum_columns<T>, output_gradient, bias_gradient, samples, outputs, padded, accumulate);
}
template void sum_bias_gradient<float>(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                                       bool);
template void sum_bias_gradient<Bf16>(cudaStream_t, const Bf16*, float*, std::int64_t, std::int64_t, std::int64_t,
                                      bool);

template <class T>
void sum_shares(cudaStream_t stream, const T* output_gradient, float* lines, std::int64_t samples, std::int64_t outputs,
                std::int64_t shares) {
    launch(stream, shares * outputs, sum_lines<T>, output_gradient, lines, samples, outputs, shares, shares * outputs);
}
template void sum_shares<float>(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, std::int64_t);
template void sum_shares<Bf16>(cudaStream_t, const Bf16*, float*, std::int64_t, std::int64_t, std::int64_t);

template <class T>
void add_weight_gradient(cudaStream_t stream, const T* made, float* gradient, std::int64_t count, std::int64_t padded,
                         bool accumulate) {
    const std::int64_t items = padded / kEight;
    launch(stream, items, add_made<T>, reinterpret_cast<const Pack<T, kEight>*>(made),
           reinterpret_cast<Pack<float, kEight>*>(gradient), count, items, accumulate);
}
template void add_weight_gradient<float>(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, bool);
template void add_weight_gradient<Bf16>(cudaStream_t, const Bf16*, float*, std::int64_t, std::int64_t, bool);

}  // namespace pw::cuda

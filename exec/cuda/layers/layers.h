// Layers on a CUDA device: cuDNN does convolutions, cuBLAS does linear layers and attention, own kernels do the
// rest. Tensors are NHWC in the device's element type: float, or bf16 (Precision::Bf16). A sequence, which has one
// channel, is stored row by row. Weights, gradients and the optimizer's states are blocks of fp32 values, with
// convolution filters as KRSC and linear weights for the input flattened as NHWC. With Bf16 a bf16 copy follows the
// weights, which products read, and room for cuDNN's result follows the gradients.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/kernels.h"
#include "workloads/costs/costs.h"

#include <cuda_bf16.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace pw::cuda {

using Bf16 = __nv_bfloat16;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Return the bytes of a tensor, the bytes of a block of `parameters` values, and the number of values in a block of
// `bytes`.
Bytes tensor_bytes(std::int64_t elements, Precision precision);   // a multiple of 64
Bytes block_bytes(std::int64_t parameters, Precision precision);  // 4 or 6 bytes per value, multiples of 32 values
std::int64_t block_values(Bytes bytes, Precision precision);

// A convolution reads images of three channels with a fourth channel of zeros, for which it has weights of zero:
// cuDNN is slow with three channels.
constexpr int padded_channels(int channels) { return channels == 3 ? 4 : channels; }

inline float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }
inline const float* floats(const std::byte* data) { return reinterpret_cast<const float*>(data); }
// Returns the bf16 part of a block that has `values` values.
inline Bf16* shadow(std::byte* block, std::int64_t values) { return reinterpret_cast<Bf16*>(floats(block) + values); }
inline const Bf16* shadow(const std::byte* block, std::int64_t values) {
    return reinterpret_cast<const Bf16*>(floats(block) + values);
}

// Returns the part of a block of weights with `values` values that products read: `T` is float or Bf16.
template <class T>
const void* read_by_products(const std::byte* weights, std::int64_t values) {
    if constexpr (std::is_same_v<T, Bf16>)
        return shadow(weights, values);
    else
        return weights;
}

// The base class of all layers of this backend. Functions that read or fill tensors wait for the device's stream:
// they are for set-up, dumps and tests.
class CudaLayer : public LayerKernel {
public:
    LayerBytes bytes() const override { return bytes_; }
    void backward_weight(const LayerArgs&) override {}
    void load(const std::vector<std::vector<float>>&, std::byte*, std::byte*) override {}
    std::vector<std::vector<float>> store(const std::byte*, const std::byte*) const override { return {}; }
    std::vector<float> read_output(const std::byte* tensor) const override { return read(layer_.output, tensor); }
    void fill_output(const std::vector<float>& values, std::byte* tensor) const override {
        fill(layer_.output, values, tensor);
    }
    std::vector<float> read_input(const std::byte* tensor, int position) const override {
        return read(input_dims(layer_, position), tensor);
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int position) const override {
        fill(input_dims(layer_, position), values, tensor);
    }

protected:
    CudaLayer(GpuShare& device, const Layer& layer, int samples);

    // Both throw Error (BadInput) with the layer's name. Own kernels number items in 32 bits, and their loops may
    // count to twice the number before they stop.
    [[noreturn]] void refuse(const std::string& why, const std::string& help) const;
    void check_items(std::int64_t items) const;

    // Copy between the host and a block's fp32 values. load_block() also writes the bf16 copy, and zeros up to the
    // block's end.
    void load_block(const std::vector<float>& values, std::byte* block, Bytes bytes) const;
    std::vector<float> store_block(const std::byte* block, std::int64_t count) const;

    std::vector<float> read(Dims dims, const std::byte* tensor) const {
        return read(dims, tensor, device_.precision());
    }
    void fill(Dims dims, const std::vector<float>& values, std::byte* tensor) const {
        fill(dims, values, tensor, device_.precision());
    }
    std::vector<float> read(Dims dims, const std::byte* tensor, Precision stored) const;
    void fill(Dims dims, const std::vector<float>& values, std::byte* tensor, Precision stored) const;

    GpuShare& device_;
    Layer layer_;
    int samples_;
    LayerBytes bytes_;
};

// Updates the running averages of a batch norm. They have all means, then all unbiased variances, as the blocks do.
void average_batches(cudaStream_t stream, const BatchStatistics& of, std::int64_t channels, std::int64_t per_sample,
                     float* running);

// The channels of a batch norm that a block of threads averages.
struct AveragedChannels {
    Bytes at;                           // the offset of the layer in a block of statistics
    std::int64_t channels, per_sample;  // of the layer (per_sample: values per channel)
    std::int64_t first;
};
// Does the same for a list of `entries` on the device. `running` is the stage's.
void average_batches(cudaStream_t stream, const BatchStatistics& of, const AveragedChannels* list, std::int64_t entries,
                     std::byte* running);

// In the functions below `T` is float or Bf16.
template <class T>
std::unique_ptr<LayerKernel> make_convolution(GpuShare& device, const Layer& layer, int samples, bool reads_data);
template <class T>
std::unique_ptr<LayerKernel> make_linear(GpuShare& device, const Layer& layer, int samples);  // and row linear
template <class T>
std::unique_ptr<LayerKernel> make_batch_norm(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_activation(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_gated_silu(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_add(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_max_pool(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_average_pool(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_cross_entropy(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_mean_squared_error(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_concat(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_upsample(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_dropout(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_embedding(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_position_bias(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_rotary(GpuShare& device, const Layer& layer, int samples);
template <class T>
std::unique_ptr<LayerKernel> make_row_norm(GpuShare& device, const Layer& layer, int samples);  // layer and RMS norm
template <class T>
std::unique_ptr<LayerKernel> make_attention(GpuShare& device, const Layer& layer, int samples);  // and grouped

}  // namespace pw::cuda

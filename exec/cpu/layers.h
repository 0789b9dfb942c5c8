// fp32 layers for this machine's cores: oneDNN does the products and the max pool, own loops do the rest. Tensors
// are nChw16c (nChw8c without AVX-512) if the channels fill whole blocks, otherwise NCHW. The layout depends only
// on the machine and the tensor's own shape, so that a cut never changes a bit.
#pragma once

#include "exec/cpu/onednn.h"
#include "exec/kernels.h"
#include "workloads/costs/costs.h"

#include <memory>

namespace pw::cpu {

// Returns the number of channels in a block: 16 if oneDNN may use AVX-512, otherwise 8. For blocks of the other
// width oneDNN has only plain loops.
std::int64_t block_channels();

bool is_blocked(Dims dims, std::int64_t per_block = block_channels());
Bytes tensor_bytes(Dims dims, int samples);
dnnl::memory::desc tensor_desc(Dims dims, int samples);
// These convert between plain NCHW and the layout above.
std::vector<float> read_tensor(Dims dims, int samples, const std::byte* tensor,
                               std::int64_t per_block = block_channels());
void fill_tensor(Dims dims, int samples, const std::vector<float>& values, std::byte* tensor,
                 std::int64_t per_block = block_channels());

inline float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }
inline const float* floats(const std::byte* data) { return reinterpret_cast<const float*>(data); }

// The base class of all layers of this backend.
class CpuLayer : public LayerKernel {
public:
    LayerBytes bytes() const override { return bytes_; }
    void backward_weight(const LayerArgs&) override {}
    void load(const std::vector<std::vector<float>>&, std::byte*, std::byte*) override {}
    std::vector<std::vector<float>> store(const std::byte*, const std::byte*) const override { return {}; }
    std::vector<float> read_output(const std::byte* tensor) const override {
        return read_tensor(layer_.output, samples_, tensor, per_block_);
    }
    void fill_output(const std::vector<float>& values, std::byte* tensor) const override {
        fill_tensor(layer_.output, samples_, values, tensor, per_block_);
    }
    std::vector<float> read_input(const std::byte* tensor, int position) const override {
        return read_tensor(input_dims(layer_, position), samples_, tensor, per_block_);
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int position) const override {
        fill_tensor(input_dims(layer_, position), samples_, values, tensor, per_block_);
    }

protected:
    CpuLayer(const Layer& layer, int samples, std::int64_t per_block = block_channels())
        : layer_(layer), samples_(samples), per_block_(per_block) {
        bytes_.output = tensor_bytes(layer.output, samples);
    }

    Layer layer_;
    int samples_;
    std::int64_t per_block_;
    LayerBytes bytes_;
};

// A kind of layer, in the file of its kernel. The table in kernels.cpp lists the rows.
struct LayerRow {
    LayerKind kind;
    std::unique_ptr<LayerKernel> (*make)(const Layer& layer, int samples, bool reads_data);
};

template <class Kernel>
constexpr LayerRow row_of(LayerKind kind) {
    return {kind, [](const Layer& layer, int samples, bool) -> std::unique_ptr<LayerKernel> {
                return std::make_unique<Kernel>(layer, samples);
            }};
}

// The kernel does not make the gradient of its input if that is data.
template <class Kernel>
constexpr LayerRow row_of_reader(LayerKind kind) {
    return {kind, [](const Layer& layer, int samples, bool reads_data) -> std::unique_ptr<LayerKernel> {
                return std::make_unique<Kernel>(layer, samples, reads_data);
            }};
}

// The kernel has own loops over blocks, and can run with blocks of 8 and of 16 channels on every machine.
template <std::unique_ptr<LayerKernel> (*make)(const Layer& layer, int samples, std::int64_t per_block)>
constexpr LayerRow row_of_blocks(LayerKind kind) {
    return {kind, [](const Layer& layer, int samples, bool) { return make(layer, samples, block_channels()); }};
}
std::unique_ptr<LayerKernel> make_batch_norm(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_average_pool(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_upsample(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_concat(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_dropout(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_cross_entropy(const Layer& layer, int samples, std::int64_t per_block);
std::unique_ptr<LayerKernel> make_mean_squared_error(const Layer& layer, int samples, std::int64_t per_block);

}  // namespace pw::cpu

// One layer with a kernel and buffers of its own on the kernel's device, for the layer tests and the bench.
#pragma once

#include "exec/kernels.h"
#include "workloads/random.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace pw {

class AlignedBytes {
public:
    explicit AlignedBytes(Bytes size, unsigned char fill = 0xff)  // 0xff...: NaN in every float
        : size_(size), data_(new (std::align_val_t{64}) std::byte[static_cast<std::size_t>(size)]) {
        std::memset(data_.get(), fill, static_cast<std::size_t>(size));
    }
    std::byte* get() const { return data_.get(); }
    Bytes size() const { return size_; }

private:
    struct Free {
        void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t{64}); }
    };
    Bytes size_;
    std::unique_ptr<std::byte[], Free> data_;
};

// A block is memory that kernels work on. For host kernels it is on the heap, where the address sanitizer checks its
// bounds.
class Block {
public:
    Block(const Kernels& kernels, Bytes size, unsigned char fill = 0xff) : size_(size) {
        if (kernels.on_host()) {
            heap_ = std::make_unique<AlignedBytes>(size, fill);
            return;
        }
        memory_ = kernels.reserve(size, "a test");
        kernels.fill(memory_->data(), fill, size);
    }
    std::byte* get() const { return heap_ ? heap_->get() : memory_->data(); }
    Bytes size() const { return size_; }

private:
    Bytes size_;
    std::unique_ptr<AlignedBytes> heap_;
    std::unique_ptr<Memory> memory_;
};

inline std::vector<float> random_values(std::int64_t count, unsigned seed, float spread = 1) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint64_t number = std::uint64_t{seed} << 32;
    for (float& value : values)  // a multiple of 2^-23 from -1 to 1
        value = spread * (static_cast<float>(mixed(++number) >> 40) * 0x1p-23f - 1);
    return values;
}

inline Layer make_layer(LayerKind kind, Dims input, int outputs, int kernel = 1, int stride = 1, int padding = 0,
                        bool relu = false) {
    Layer layer{.name = "tested", .kind = kind, .input = input, .output = input};
    layer.kernel = kernel;
    layer.stride = stride;
    layer.padding = padding;
    layer.relu = relu;
    const auto pooled = [&](int extent) { return (extent + 2 * padding - kernel) / stride + 1; };
    if (kind == LayerKind::Convolution || kind == LayerKind::MaxPool)
        layer.output = {outputs, pooled(input.height), pooled(input.width)};
    if (kind == LayerKind::AveragePool || kind == LayerKind::Linear)
        layer.output = {outputs, 1, 1};
    if (kind == LayerKind::Concat)
        layer.output.channels = outputs;
    if (kind == LayerKind::Upsample)
        layer.output = {outputs, input.height * stride, input.width * stride};
    if (is_loss(kind))
        layer.output = {1, 1, 1};
    return layer;
}

class LayerRig {
public:
    LayerRig(const Kernels& kernels, const Layer& tested, int samples_, bool reads_data = false)
        : LayerRig(kernels, tested, samples_, kernels.make(tested, samples_, reads_data)) {}

    LayerRig(const Kernels& kernels, const Layer& tested, int samples_, std::unique_ptr<LayerKernel> made)
        : layer(tested),
          samples(samples_),
          kernel(std::move(made)),
          sizes(kernel->bytes()),
          output(kernels, sizes.output),
          weights(kernels, sizes.weights),
          weight_gradient(kernels, sizes.weights),
          statistics(kernels, sizes.statistics),
          saved(kernels, sizes.saved_until_input),
          kept(kernels, sizes.kept_until_weight),
          output_gradient(kernels, sizes.output),
          scratch(kernels, sizes.scratch),
          kernels_(&kernels),
          notes_(kernels.shared(static_cast<Bytes>(sizeof(double) + sizeof(int) * label_count()))) {
        for (int k = 0; k < facts_of(layer.kind).inputs; ++k) {
            inputs.emplace_back(kernels, kernels.data_bytes(input_dims(layer, k), samples), 0);
            input_gradients.emplace_back(kernels, kernels.data_bytes(input_dims(layer, k), samples));
        }
        for (std::size_t k = 0; k < inputs.size(); ++k) {
            input_pointers_.push_back(inputs[k].get());
            gradient_pointers_.push_back(input_gradients[k].get());
        }
        for (std::size_t n = 0; n < label_count(); ++n)
            labels()[n] = static_cast<int>((3 * n + 1) % static_cast<std::size_t>(loss_shape(layer).classes));
    }

    LayerRig(LayerRig&&) = default;
    ~LayerRig() { kernels_->finish(); }  // queued work uses the buffers

    // Fills in random inputs, parameters and output gradient, the same for every backend, in values that `rounded`
    // keeps.
    void fill(
        unsigned seed, float (*rounded)(float) = [](float value) { return value; }) {
        const auto random = [&](std::int64_t count, unsigned at) {
            auto values = random_values(count, seed + at);
            std::ranges::transform(values, values.begin(), rounded);
            return values;
        };
        for (int k = 0; k < std::ssize(inputs); ++k)
            kernel->fill_input(random(input_elements(k), 10 + static_cast<unsigned>(k)),
                               inputs[static_cast<std::size_t>(k)].get(), k);
        std::vector<std::vector<float>> values;
        for (const ParameterShape& shape : parameters_of(layer)) {
            values.push_back(random(shape.elements(), 20 + static_cast<unsigned>(values.size())));
            if (!shape.trained)
                std::ranges::transform(values.back(), values.back().begin(), [](float v) { return 1.5f + v; });
        }
        kernel->load(values, weights.get(), statistics.get());
        fill_gradient(random(output_elements(), 30));
    }

    void fill_gradient(const std::vector<float>& values) { kernel->fill_output(values, output_gradient.get()); }

    std::int64_t output_elements() const { return is_loss(layer.kind) ? 0 : samples * layer.output.elements(); }
    std::int64_t input_elements(int k) const { return samples * input_dims(layer, k).elements(); }

    LayerArgs args(bool accumulate = false) {
        LayerArgs all;
        all.inputs = input_pointers_;
        all.output = output.get();
        all.weights = weights.get();
        all.statistics = statistics.get();
        all.saved = saved.get();
        all.kept = kept.get();
        all.output_gradient = output_gradient.get();
        all.input_gradients = gradient_pointers_;
        all.weight_gradient = weight_gradient.get();
        all.accumulate = accumulate;
        all.scratch = scratch.get();
        all.seed = 77;
        all.labels = {labels(), label_count()};
        all.loss_scale = loss_scale;
        all.loss = reinterpret_cast<double*>(notes_->data());
        return all;
    }

    void forward(bool save = true) { kernel->forward(args(), save); }
    void backward(bool accumulate = false) {
        kernel->backward_input(args(accumulate));
        kernel->backward_weight(args(accumulate));
    }

    double loss() const {
        kernels_->finish();
        return *reinterpret_cast<const double*>(notes_->data());
    }

    // The following return values in plain layouts.
    std::vector<float> plain_output() const { return kernel->read_output(output.get()); }
    std::vector<float> plain_input_gradient(std::size_t k) const {
        return kernel->read_input(input_gradients[k].get(), static_cast<int>(k));
    }
    std::vector<std::vector<float>> parameters() const { return kernel->store(weights.get(), statistics.get()); }
    std::vector<std::vector<float>> parameter_gradients() const {
        auto all = kernel->store(weight_gradient.get(), statistics.get());
        all.resize(std::min<std::size_t>(all.size(), 2));  // batch norm: without the running averages
        return all;
    }

    Layer layer;
    int samples;
    std::unique_ptr<LayerKernel> kernel;
    LayerBytes sizes;
    std::vector<Block> inputs, input_gradients;
    Block output, weights, weight_gradient, statistics, saved, kept, output_gradient, scratch;
    double loss_scale = 0.25;

private:
    int* labels() const { return reinterpret_cast<int*>(notes_->data() + sizeof(double)); }
    std::size_t label_count() const {
        return static_cast<std::size_t>(is_loss(layer.kind) ? samples * loss_shape(layer).positions : 0);
    }

    const Kernels* kernels_;
    std::unique_ptr<Memory> notes_;  // the loss, then the labels
    std::vector<const std::byte*> input_pointers_;
    std::vector<std::byte*> gradient_pointers_;
};

}  // namespace pw

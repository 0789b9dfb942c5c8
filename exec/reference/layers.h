// The reference kernels: plain loops over plain NCHW tensors, in float or double; slow, but easy to verify. Every
// other backend is compared with them. Sums are in double, in index order.
#pragma once

#include "exec/kernels.h"
#include "workloads/costs/costs.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace pw::reference {

template <class Real>
Bytes bytes_of(std::int64_t elements) {
    return aligned(elements * static_cast<Bytes>(sizeof(Real)));
}

// The base class of all layers: shapes, sizes, plain tensors as inputs and outputs.
template <class Real>
class PlainLayer : public LayerKernel {
public:
    LayerBytes bytes() const override { return bytes_; }
    void backward_weight(const LayerArgs&) override {}
    void load(const std::vector<std::vector<float>>&, std::byte*, std::byte*) override {}
    std::vector<std::vector<float>> store(const std::byte*, const std::byte*) const override { return {}; }
    std::vector<float> read_output(const std::byte* tensor) const override { return read(tensor, outputs_); }
    void fill_output(const std::vector<float>& values, std::byte* tensor) const override { fill(values, tensor); }
    std::vector<float> read_input(const std::byte* tensor, int position) const override {
        return read(tensor, samples_ * input_dims(layer_, position).elements());
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int) const override { fill(values, tensor); }

protected:
    PlainLayer(const Layer& layer, int samples)
        : layer_(layer),
          samples_(samples),
          inputs_(samples * layer.input.elements()),
          outputs_(is_loss(layer.kind) ? 0 : samples * layer.output.elements()) {
        bytes_.output = bytes_of<Real>(outputs_);
    }

    static Real* reals(std::byte* data) { return reinterpret_cast<Real*>(data); }
    static const Real* reals(const std::byte* data) { return reinterpret_cast<const Real*>(data); }

    static std::vector<float> read(const std::byte* data, std::int64_t count) {
        return {reals(data), reals(data) + count};
    }

    static void fill(const std::vector<float>& values, std::byte* data) { std::ranges::copy(values, reals(data)); }

    Layer layer_;
    int samples_;
    std::int64_t inputs_, outputs_;  // elements of one tensor, all samples
    LayerBytes bytes_;
};

// Overwrites a value of a gradient block, or adds to it.
template <class Real>
void put(Real& place, double value, bool accumulate) {
    place = static_cast<Real>(accumulate ? static_cast<double>(place) + value : value);
}

// A kind of layer, in the file of its kernel. The table in kernels.cpp lists the rows.
struct LayerRow {
    using Make = std::unique_ptr<LayerKernel>(const Layer& layer, int samples);
    LayerKind kind;
    Make *in_float, *in_double;
};

template <class Kernel>
std::unique_ptr<LayerKernel> made(const Layer& layer, int samples) {
    return std::make_unique<Kernel>(layer, samples);
}

template <template <class> class Kernel>
constexpr LayerRow row_of(LayerKind kind) {
    return {kind, made<Kernel<float>>, made<Kernel<double>>};
}

}  // namespace pw::reference

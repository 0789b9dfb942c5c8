// The table of tokens and the vectors of positions. Token numbers come as fp32 data in every precision: bf16 would
// round those above 256.
#include "exec/cuda/layers.h"
#include "exec/cuda/linear_loops.h"
#include "exec/cuda/packs.h"

#include <cassert>

namespace pw::cuda {

namespace {

// Whatever comes, no table is read or written outside.
__device__ inline unsigned token_in(float value, unsigned vocabulary) {
    return value >= 0 && value < static_cast<float>(vocabulary) ? static_cast<unsigned>(value) : 0;
}

template <class T>
__global__ void look_up(const float* __restrict__ tokens, const float* __restrict__ table, T* __restrict__ y,
                        unsigned vocabulary, unsigned width, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const std::int64_t row = i / width;
    y[i] = rounded<T>(table[std::int64_t{token_in(tokens[row], vocabulary)} * width + (i - row * width)]);
}

// The rows of the data that hold the same token, in their order.
struct Link {
    unsigned next;   // as many as there are rows: it is the last
    unsigned first;  // 1 when it is the first
};

__global__ void link_rows(const float* __restrict__ tokens, Link* __restrict__ links, unsigned vocabulary,
                          unsigned rows) {
    const auto row = static_cast<unsigned>(item());
    if (row >= rows)
        return;
    const unsigned token = token_in(tokens[row], vocabulary);
    Link link = {rows, 1};
    const auto read = [&](unsigned other) { return token_in(tokens[other], vocabulary); };
    for_places<8>(0, 1, row, read, [&](unsigned, unsigned other) { link.first = other == token ? 0 : link.first; });
    for_places<8>(row + 1, 1, rows, read, [&](unsigned place, unsigned other) {
        link.next = other == token && place < link.next ? place : link.next;
    });
    links[row] = link;
}

// One thread per row and column: those of a token's first row add up all of its rows.
template <class T>
__global__ void add_rows(const float* __restrict__ tokens, const Link* __restrict__ links,
                         const T* __restrict__ output_gradient, float* __restrict__ gradient, unsigned vocabulary,
                         unsigned width, unsigned rows, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const auto first = static_cast<unsigned>(i / width), column = static_cast<unsigned>(i % width);
    if (links[first].first == 0)
        return;
    float sum = 0;
    for (unsigned row = first; row < rows; row = links[row].next)
        sum += real(output_gradient[std::int64_t{row} * width + column]);
    gradient[std::int64_t{token_in(tokens[first], vocabulary)} * width + column] += sum;
}

// The block: the table {vocabulary, width}, zeros.
template <class T>
class Embedding : public CudaLayer {
public:
    Embedding(Device& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          vocabulary_(static_cast<unsigned>(layer.vocabulary)),
          width_(static_cast<unsigned>(layer.output.width)),
          rows_(static_cast<unsigned>(samples * layer.input.elements())) {
        bytes_.weights = block_bytes(parameters(), device.precision());
        bytes_.scratch = round_up(std::int64_t{rows_} * static_cast<Bytes>(sizeof(Link)), 64);
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), items(), look_up<T>, floats(args.inputs[0]), floats(args.weights),
               reinterpret_cast<T*>(args.output), vocabulary_, width_, items());
    }

    void backward_input(const LayerArgs&) override {}  // of numbers there is none

    void backward_weight(const LayerArgs& args) override {
        float* gradient = floats(args.weight_gradient);
        const float* tokens = floats(args.inputs[0]);
        auto* links = reinterpret_cast<Link*>(args.scratch);
        const auto values = static_cast<std::size_t>(block_values(bytes_.weights, device_.precision()));
        if (!args.accumulate)
            check(cudaMemsetAsync(gradient, 0, values * sizeof(float), device_.stream()), "cudaMemsetAsync");
        launch(device_.stream(), rows_, link_rows, tokens, links, vocabulary_, rows_);
        launch(device_.stream(), items(), add_rows<T>, tokens, links, reinterpret_cast<const T*>(args.output_gradient),
               gradient, vocabulary_, width_, rows_, items());
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        load_block(values[0], weights, bytes_.weights);
    }
    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {store_block(weights, parameters())};
    }
    std::vector<float> read_input(const std::byte* tensor, int) const override {
        return read(layer_.input, tensor, Precision::Fp32);
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int) const override {
        fill(layer_.input, values, tensor, Precision::Fp32);
    }

private:
    std::int64_t parameters() const { return std::int64_t{vocabulary_} * width_; }
    std::int64_t items() const { return std::int64_t{rows_} * width_; }

    unsigned vocabulary_, width_, rows_;
};

template <class T>
__global__ void add_bias_of_sample(const T* __restrict__ x, const float* __restrict__ bias, T* __restrict__ y,
                                   std::int64_t values, std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        y[i] = rounded<T>(real(x[i]) + bias[i % values]);
}

// The block: a vector per position, zeros.
template <class T>
class PositionBias : public CudaLayer {
public:
    PositionBias(Device& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples), values_(layer.input.elements()) {
        bytes_.weights = block_bytes(values_, device.precision());
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), samples_ * values_, add_bias_of_sample<T>, reinterpret_cast<const T*>(args.inputs[0]),
               floats(args.weights), reinterpret_cast<T*>(args.output), values_, samples_ * values_);
    }

    void backward_input(const LayerArgs& args) override {
        sum_bias_gradient(device_.stream(), reinterpret_cast<const T*>(args.output_gradient),
                          floats(args.weight_gradient), samples_, values_,
                          block_values(bytes_.weights, device_.precision()), args.accumulate);
        if (args.input_gradients[0])
            check(cudaMemcpyAsync(args.input_gradients[0], args.output_gradient,
                                  static_cast<std::size_t>(bytes_.output), cudaMemcpyDeviceToDevice, device_.stream()),
                  "cudaMemcpyAsync");
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        load_block(values[0], weights, bytes_.weights);
    }
    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {store_block(weights, values_)};
    }

private:
    std::int64_t values_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_embedding(Device& device, const Layer& layer, int samples) {
    return std::make_unique<Embedding<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_embedding<float>(Device&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_embedding<Bf16>(Device&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_position_bias(Device& device, const Layer& layer, int samples) {
    return std::make_unique<PositionBias<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_position_bias<float>(Device&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_position_bias<Bf16>(Device&, const Layer&, int);

}  // namespace pw::cuda

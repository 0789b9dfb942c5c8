// The table of tokens and the vectors of positions. Token numbers are fp32 data in every precision, since bf16
// would round numbers above 256.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "exec/cuda/layers/packs.h"

#include <utility>

namespace pw::cuda {

namespace {

// Returns 0 for any value that is not a token, so that no access is outside a table.
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

// A token and a row of the data that contains it. Sorting puts the rows of a token together, in the order in which
// they are added up.
using Key = unsigned long long;

__device__ inline Key key_of(unsigned token, std::int64_t row) { return Key{token} << 32 | static_cast<Key>(row); }
__device__ inline unsigned token_of(Key key) { return static_cast<unsigned>(key >> 32); }
__device__ inline unsigned row_of(Key key) { return static_cast<unsigned>(key); }

constexpr std::int64_t kRun = 64;  // number of keys that are sorted by comparing each with all other keys

__device__ inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Returns the number of smaller keys among keys[first] ... keys[end - 1], which are in ascending order.
__device__ inline std::int64_t count_below(const Key* keys, std::int64_t first, std::int64_t end, Key key) {
    std::int64_t low = first;
    while (low < end) {
        const std::int64_t middle = low + (end - low) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            end = middle;
    }
    return low - first;
}

// Makes the keys, in ascending runs of kRun.
__global__ void make_runs(const float* __restrict__ tokens, Key* __restrict__ keys, unsigned vocabulary,
                          std::int64_t rows) {
    const std::int64_t row = item();
    if (row >= rows)
        return;
    const std::int64_t first = row / kRun * kRun, end = smaller(first + kRun, rows);
    const Key own = key_of(token_in(tokens[row], vocabulary), row);
    std::int64_t below = 0;
    for (std::int64_t other = first; other < end; ++other)
        below += key_of(token_in(tokens[other], vocabulary), other) < own ? 1 : 0;
    keys[first + below] = own;
}

// Merges pairs of ascending runs of `run` keys each.
__global__ void merge_runs(const Key* __restrict__ from, Key* __restrict__ to, std::int64_t run, std::int64_t rows) {
    const std::int64_t i = item();
    if (i >= rows)
        return;
    const std::int64_t first = i / (2 * run) * (2 * run), second = smaller(first + run, rows);
    const std::int64_t end = smaller(second + run, rows);
    const Key own = from[i];
    const std::int64_t below_in_other =
        i < second ? count_below(from, second, end, own) : count_below(from, first, second, own);
    to[(i < second ? i : first + (i - second)) + below_in_other] = own;
}

// A thread per key and column. The threads of a token's first key add up all of its rows.
template <class T>
__global__ void add_rows(const Key* __restrict__ keys, const T* __restrict__ output_gradient,
                         float* __restrict__ gradient, unsigned width, std::int64_t rows, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const std::int64_t first = i / width, column = i - first * width;
    const unsigned token = token_of(keys[first]);
    if (first > 0 && token_of(keys[first - 1]) == token)
        return;
    const std::int64_t end = first + count_below(keys, first, rows, key_of(token + 1, 0));
    float sum = 0;
    for_places<8>(
        static_cast<unsigned>(first), 1, static_cast<unsigned>(end),
        [&](unsigned place) { return output_gradient[std::int64_t{row_of(keys[place])} * width + column]; },
        [&](unsigned, T read) { sum += real(read); });
    gradient[std::int64_t{token} * width + column] += sum;
}

// weights: the table {vocabulary, width}, zeros.
template <class T>
class Embedding : public CudaLayer {
public:
    Embedding(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          vocabulary_(static_cast<unsigned>(layer.vocabulary)),
          width_(static_cast<unsigned>(layer.output.width)),
          rows_(samples * layer.input.elements()) {
        check_items(rows_);
        bytes_.weights = block_bytes(parameters(), device.precision());
        bytes_.scratch = 2 * key_bytes();
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), items(), look_up<T>, floats(args.inputs[0]), floats(args.weights),
               reinterpret_cast<T*>(args.output), vocabulary_, width_, items());
    }

    void backward_input(const LayerArgs&) override {}  // token numbers have no gradient

    void backward_weight(const LayerArgs& args) override {
        float* gradient = floats(args.weight_gradient);
        const auto values = static_cast<std::size_t>(block_values(bytes_.weights, device_.precision()));
        if (!args.accumulate)
            check(cudaMemsetAsync(gradient, 0, values * sizeof(float), device_.stream()), "cudaMemsetAsync");
        const Key* keys = sorted_keys(floats(args.inputs[0]), args.scratch);
        launch(device_.stream(), items(), add_rows<T>, keys, reinterpret_cast<const T*>(args.output_gradient), gradient,
               width_, rows_, items());
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
    std::int64_t items() const { return rows_ * width_; }
    Bytes key_bytes() const { return aligned(rows_ * static_cast<Bytes>(sizeof(Key))); }

    // The keys are in one half of the scratch.
    const Key* sorted_keys(const float* tokens, std::byte* scratch) const {
        auto *keys = reinterpret_cast<Key*>(scratch), *other = reinterpret_cast<Key*>(scratch + key_bytes());
        launch(device_.stream(), rows_, make_runs, tokens, keys, vocabulary_, rows_);
        for (std::int64_t run = kRun; run < rows_; run *= 2) {
            launch(device_.stream(), rows_, merge_runs, keys, other, run, rows_);
            std::swap(keys, other);
        }
        return keys;
    }

    unsigned vocabulary_, width_;
    std::int64_t rows_;
};

template <class T>
__global__ void add_bias_of_sample(const T* __restrict__ x, const float* __restrict__ bias, T* __restrict__ y,
                                   std::int64_t values, std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        y[i] = rounded<T>(real(x[i]) + bias[i % values]);
}

// weights: a vector per position, zeros.
template <class T>
class PositionBias : public CudaLayer {
public:
    PositionBias(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples), values_(layer.input.elements()) {
        bytes_.weights = block_bytes(values_, device.precision());
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), samples_ * values_, add_bias_of_sample<T>, reinterpret_cast<const T*>(args.inputs[0]),
               floats(args.weights), reinterpret_cast<T*>(args.output), values_, samples_ * values_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.weight_gradient != nullptr)
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
std::unique_ptr<LayerKernel> make_embedding(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Embedding<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_embedding<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_embedding<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_position_bias(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<PositionBias<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_position_bias<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_position_bias<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda

#include "exec/cuda/layers/stage_update.h"

#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"

#include <algorithm>
#include <cmath>

namespace pw::cuda {

// The rules of updates for kernels. Each thread calls begin() once, and update() replaces a weight and its states.
struct SgdRule {
    static constexpr int kStates = 1;
    float learning_rate, momentum, weight_decay;

    __device__ void begin() {}
    __device__ void update(float gradient, float& weight, float (&states)[kStates]) const {
        states[0] = momentum * states[0] + (gradient + weight_decay * weight);
        weight -= learning_rate * states[0];
    }
};

// The numbers of an update of AdamW that depend on its own number.
struct AdamWCorrections {
    float step_size, root;
};

struct AdamWRule {
    static constexpr int kStates = 2;
    float keep, new_mean, old_square, new_square, epsilon;
    const AdamWCorrections* corrections;  // in device memory
    AdamWCorrections own = {};

    __device__ void begin() { own = *corrections; }
    __device__ void update(float gradient, float& weight, float (&states)[kStates]) const {
        states[0] += new_mean * (gradient - states[0]);
        states[1] = old_square * states[1] + new_square * gradient * gradient;
        weight = keep * weight - own.step_size * states[0] / (sqrtf(states[1]) / own.root + epsilon);
    }
};

namespace {

using Four = Pack<float, 4>;

constexpr std::int64_t kShare = 2048;  // fours per block of threads
// `at`, `first` and `end` are in fours, `values` is in floats.
struct Share {
    std::int64_t at;      // the offset of the layer's block in the stage's
    std::int64_t values;  // the layer's values, followed by the rounded values
    unsigned first, end;  // of the layer's fours
};

// The shares of a layer whose gradient is measured.
struct LayerSum {
    unsigned first, end;
    int layer;
};

// Computes AdamW::step_size() and root() on the device: a graph repeats an update with other numbers.
__global__ void correct(AdamW adamw, const Later* later, AdamWCorrections* corrections) {
    if (item() > 0)
        return;
    const auto number = static_cast<double>(adamw.number + later->steps);
    *corrections = {static_cast<float>(adamw.learning_rate / (1 - pow(adamw.betas[0], number))),
                    static_cast<float>(sqrt(1 - pow(adamw.betas[1], number)))};
}

__device__ Four* fours(std::byte* block, std::int64_t at) { return reinterpret_cast<Four*>(block) + at; }
__device__ const Four* fours(const std::byte* block, std::int64_t at) {
    return reinterpret_cast<const Four*>(block) + at;
}
__device__ Pack<Bf16, 4>* rounded_fours(std::byte* block, const Share& share) {
    return reinterpret_cast<Pack<Bf16, 4>*>(fours(block, share.at + share.values / 4));
}

__device__ double squares_of(const Four& four) {
    double sum = 0;
    for (const float value : four.values)
        sum += static_cast<double>(value) * static_cast<double>(value);
    return sum;
}

__device__ void put_sum(double* values, double* sum) {
    sum_threads(values, 1);
    if (threadIdx.x == 0)
        *sum = values[0];
}

// A thread reads every value before it writes it, so that new_weights may be weights. `partials` are the sums of
// squares of each share, or null if the norm is not needed. The blocks of the states are `apart` bytes apart.
template <class Rule>
__global__ void update_shares(const Share* shares, Rule rule, const std::byte* weights, const std::byte* gradients,
                              std::byte* states, Bytes apart, std::byte* new_weights, bool rounds, double* partials) {
    __shared__ double squares[kBlock];
    const Share share = shares[blockIdx.x];
    rule.begin();
    for_own_threads([&](unsigned thread) {
        double sum = 0;
        for (unsigned i = share.first + thread; i < share.end; i += kBlock) {
            const Four g = fours(gradients, share.at)[i];
            Four w = fours(weights, share.at)[i], kept[Rule::kStates];
            for (int state = 0; state < Rule::kStates; ++state)
                kept[state] = fours(states + state * apart, share.at)[i];
            for (int k = 0; k < 4; ++k) {
                float own[Rule::kStates];
                for (int state = 0; state < Rule::kStates; ++state)
                    own[state] = kept[state].values[k];
                rule.update(g.values[k], w.values[k], own);
                for (int state = 0; state < Rule::kStates; ++state)
                    kept[state].values[k] = own[state];
            }
            for (int state = 0; state < Rule::kStates; ++state)
                fours(states + state * apart, share.at)[i] = kept[state];
            fours(new_weights, share.at)[i] = w;
            if (rounds)
                rounded_fours(new_weights, share)[i] = rounded<Bf16>(w);
            sum += squares_of(g);
        }
        squares[thread] = sum;
    });
    if (partials != nullptr)
        put_sum(squares, partials + blockIdx.x);
}

__global__ void square_shares(const Share* shares, const std::byte* gradients, double* partials) {
    __shared__ double squares[kBlock];
    const Share share = shares[blockIdx.x];
    for_own_threads([&](unsigned thread) {
        double sum = 0;
        for (unsigned i = share.first + thread; i < share.end; i += kBlock)
            sum += squares_of(fours(gradients, share.at)[i]);
        squares[thread] = sum;
    });
    put_sum(squares, partials + blockIdx.x);
}

__global__ void add_shares(const LayerSum* layers, const double* partials, double* squares) {
    __shared__ double sums[kBlock];
    const LayerSum of = layers[blockIdx.x];
    for_own_threads([&](unsigned thread) {
        double sum = 0;
        for (unsigned i = of.first + thread; i < of.end; i += kBlock)
            sum += partials[i];
        sums[thread] = sum;
    });
    put_sum(sums, squares + of.layer);
}

__global__ void predict_shares(const Share* shares, const std::byte* weights, const std::byte* momentum, float factor,
                               std::byte* out, bool rounds) {
    const Share share = shares[blockIdx.x];
    for (unsigned i = share.first + threadIdx.x; i < share.end; i += kBlock) {
        const Four v = fours(momentum, share.at)[i];
        Four w = fours(weights, share.at)[i];
        for (int k = 0; k < 4; ++k)
            w.values[k] -= factor * v.values[k];
        fours(out, share.at)[i] = w;
        if (rounds)
            rounded_fours(out, share)[i] = rounded<Bf16>(w);
    }
}

template <class Entry>
const Entry* entries(const DeviceMemory& list) {
    return reinterpret_cast<const Entry*>(list.get());
}

template <class Entry>
DeviceMemory listed(const std::vector<Entry>& entries, cudaStream_t stream) {
    DeviceMemory list = allocate(std::max<Bytes>(static_cast<Bytes>(entries.size() * sizeof(Entry)), 1));
    if (entries.empty())
        return list;
    check(cudaMemcpyAsync(list.get(), entries.data(), entries.size() * sizeof(Entry), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return list;
}

}  // namespace

StageUpdate::StageUpdate(const GpuShare& device, const std::vector<StageBlock>& blocks) : device_(device) {
    std::vector<Share> shares;
    std::vector<LayerSum> sums;
    std::vector<AveragedChannels> averages;
    for (const StageBlock& block : blocks) {
        const std::int64_t values = block_values(block.weights, device.precision()), end = values / 4;
        const auto first = static_cast<unsigned>(shares.size());
        for (std::int64_t from = 0; from < end; from += kShare)
            shares.push_back({block.weights_at / Bytes{sizeof(Four)}, values, static_cast<unsigned>(from),
                              static_cast<unsigned>(std::min(from + kShare, end))});
        if (block.is_measured && values > 0)
            sums.push_back({first, static_cast<unsigned>(shares.size()), block.layer});
        for (std::int64_t from = 0; block.statistics > 0 && from < block.channels; from += kBlock)
            averages.push_back({block.statistics_at, block.channels, block.per_sample, from});
    }
    shares_ = std::ssize(shares);
    sums_ = std::ssize(sums);
    averages_ = std::ssize(averages);
    share_list_ = listed(shares, device.stream());
    sum_list_ = listed(sums, device.stream());
    average_list_ = listed(averages, device.stream());
    corrections_ = allocate(sizeof(AdamWCorrections));
    partials_ = allocate(std::max<Bytes>(shares_, 1) * static_cast<Bytes>(sizeof(double)));
}

SgdRule StageUpdate::rule_of(const Sgd& sgd) const {
    return {static_cast<float>(sgd.learning_rate), static_cast<float>(sgd.momentum),
            static_cast<float>(sgd.weight_decay)};
}

AdamWRule StageUpdate::rule_of(const AdamW& adamw) const {
    auto* const corrections = reinterpret_cast<AdamWCorrections*>(corrections_.get());
    launch(device_.stream(), 1, correct, adamw, device_.later(), corrections);
    return {static_cast<float>(1 - adamw.learning_rate * adamw.weight_decay),
            static_cast<float>(1 - adamw.betas[0]),
            static_cast<float>(adamw.betas[1]),
            static_cast<float>(1 - adamw.betas[1]),
            static_cast<float>(adamw.epsilon),
            corrections};
}

template <class Rule>
void StageUpdate::update_by(const Rule& rule, const std::byte* weights, const std::byte* gradients,
                            const OptimizerStates& states, std::byte* new_weights, double* squares) const {
    launch(device_.stream(), shares_ * kBlock, update_shares<Rule>, entries<Share>(share_list_), rule, weights,
           gradients, states.first, states.apart, new_weights, device_.precision() == Precision::Bf16,
           squares == nullptr ? nullptr : reinterpret_cast<double*>(partials_.get()));
    if (squares != nullptr)
        add_up(squares);
}

void StageUpdate::update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradients,
                         const OptimizerStates& states, std::byte* new_weights, double* squares) const {
    std::visit([&](const auto& own) { update_by(rule_of(own), weights, gradients, states, new_weights, squares); },
               rule);
}

void StageUpdate::measure(const std::byte* gradients, double* squares) const {
    launch(device_.stream(), shares_ * kBlock, square_shares, entries<Share>(share_list_), gradients,
           reinterpret_cast<double*>(partials_.get()));
    add_up(squares);
}

void StageUpdate::add_up(double* squares) const {
    launch(device_.stream(), sums_ * kBlock, add_shares, entries<LayerSum>(sum_list_), entries<double>(partials_),
           squares);
}

void StageUpdate::predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const {
    launch(device_.stream(), shares_ * kBlock, predict_shares, entries<Share>(share_list_), weights, momentum,
           static_cast<float>(factor), out, device_.precision() == Precision::Bf16);
}

void StageUpdate::gather_statistics(const BatchStatistics& of, std::byte* running) const {
    average_batches(device_.stream(), of, entries<AveragedChannels>(average_list_), averages_, running);
}

}  // namespace pw::cuda

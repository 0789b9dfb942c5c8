// Layers on rows of tokens: all except the products and attention. Sequences have one channel, so that they are
// never blocked.
#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"
#include "exec/cpu/sequence_loops.h"
#include "exec/training/rotary_angle.h"
#include "exec/training/tokens.h"

#include <algorithm>
#include <cmath>

namespace pw::cpu {

namespace {

void clear(std::byte* block, Bytes bytes) { std::fill_n(block, bytes, std::byte{}); }

// weights: the table {vocabulary, width}.
class Embedding : public CpuLayer {
public:
    Embedding(const Layer& layer, int samples)
        : CpuLayer(layer, samples), rows_(samples * layer.input.elements()), width_(layer.output.width) {
        bytes_.weights = aligned(table() * kFloatBytes);
    }

    void forward(const LayerArgs& args, bool) override {
        in_shares(rows_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t row = first; row < first + count; ++row)
                std::copy_n(floats(args.weights) + token(args, row) * width_, width_,
                            floats(args.output) + row * width_);
        });
    }

    void backward_input(const LayerArgs&) override {}

    // Threads divide the columns, so that the rows of one token are added in their order.
    void backward_weight(const LayerArgs& args) override {
        if (!args.accumulate)
            clear(args.weight_gradient, bytes_.weights);
        in_shares(groups_of(width_), [&](std::int64_t first, std::int64_t groups) {
            const std::int64_t column = first * kLanes, count = std::min(groups * kLanes, width_ - column);
            for (std::int64_t row = 0; row < rows_; ++row) {
                float* sum = floats(args.weight_gradient) + token(args, row) * width_ + column;
                add_rows(sum, floats(args.output_gradient) + row * width_ + column, sum, count);
            }
        });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        clear(weights, bytes_.weights);
        std::ranges::copy(values[0], floats(weights));
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {{floats(weights), floats(weights) + table()}};
    }

private:
    std::int64_t table() const { return layer_.vocabulary * width_; }
    std::int64_t token(const LayerArgs& args, std::int64_t row) const {
        return token_in(floats(args.inputs[0])[row], layer_.vocabulary);
    }

    std::int64_t rows_, width_;
};

// weights: a vector per position of the whole sequence.
class PositionBias : public CpuLayer {
public:
    PositionBias(const Layer& layer, int samples)
        : CpuLayer(layer, samples), values_(layer.input.elements()), all_values_(values_ * layer.slices) {
        bytes_.weights = aligned(all_values_ * kFloatBytes);
    }

    void forward(const LayerArgs& args, bool) override {
        for_columns([&](std::int64_t first, std::int64_t count) {
            for (std::int64_t n = 0; n < samples_; ++n)
                add_rows(floats(args.inputs[0]) + n * values_ + first,
                         floats(args.weights) + args.slice * values_ + first, floats(args.output) + n * values_ + first,
                         count);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (args.weight_gradient && !args.accumulate)
            clear(args.weight_gradient, bytes_.weights);
        const float* dy = floats(args.output_gradient);
        for_columns([&](std::int64_t first, std::int64_t count) {
            float* sum = args.weight_gradient ? floats(args.weight_gradient) + args.slice * values_ + first : nullptr;
            for (std::int64_t n = 0; n < samples_; ++n) {
                if (sum)
                    add_rows(sum, dy + n * values_ + first, sum, count);
                if (args.input_gradients[0])
                    std::copy_n(dy + n * values_ + first, count, floats(args.input_gradients[0]) + n * values_ + first);
            }
        });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        clear(weights, bytes_.weights);
        std::ranges::copy(values[0], floats(weights));
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {{floats(weights), floats(weights) + all_values_}};
    }

private:
    // Each thread takes a share of every sample.
    template <class Work>
    void for_columns(Work work) const {
        in_shares(groups_of(values_), [&](std::int64_t first, std::int64_t groups) {
            work(first * kLanes, std::min(groups * kLanes, values_ - first * kLanes));
        });
    }

    std::int64_t values_, all_values_;  // of a slice and of all
};

// Layer norm and RMS norm. weights: scale, and the layer norm's shift. saved: of every row the layer norm's mean, and 1
// / deviation. These are in the scratch if nothing is saved.
class RowNorm : public CpuLayer {
public:
    RowNorm(const Layer& layer, int samples)
        : CpuLayer(layer, samples),
          centred_(layer.kind == LayerKind::LayerNorm),
          vectors_(centred_ ? 2 : 1),
          rows_(std::int64_t{samples} * layer.input.height),
          width_(layer.input.width) {
        bytes_.weights = aligned(vectors_ * width_ * kFloatBytes);
        bytes_.saved_until_input = aligned(vectors_ * rows_ * kFloatBytes);
        bytes_.scratch = bytes_.saved_until_input;
    }

    void forward(const LayerArgs& args, bool save) override {
        const float* scale = floats(args.weights);
        in_shares(rows_, [&](std::int64_t first, std::int64_t count) {
            normalise_rows(rows_of(args, save ? args.saved : args.scratch, first, count), scale, scale + width_,
                           floats(args.output) + first * width_);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (args.weight_gradient)
            put_weight_gradients(args);
        if (!args.input_gradients[0])
            return;
        in_shares(rows_, [&](std::int64_t first, std::int64_t count) {
            norm_rows_gradient(rows_of(args, args.saved, first, count), floats(args.weights),
                               floats(args.output_gradient) + first * width_,
                               floats(args.input_gradients[0]) + first * width_);
        });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        clear(weights, bytes_.weights);
        for (std::int64_t k = 0; k < vectors_; ++k)
            std::ranges::copy(values[k], floats(weights) + k * width_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        std::vector<std::vector<float>> values;
        for (std::int64_t k = 0; k < vectors_; ++k)
            values.emplace_back(floats(weights) + k * width_, floats(weights) + (k + 1) * width_);
        return values;
    }

private:
    NormRows rows_of(const LayerArgs& args, std::byte* state, std::int64_t first, std::int64_t count) const {
        return {floats(args.inputs[0]) + first * width_, floats(state) + vectors_ * first, count, width_, centred_};
    }

    void put_weight_gradients(const LayerArgs& args) const {
        if (!args.accumulate)
            clear(args.weight_gradient, bytes_.weights);
        float* gradient = floats(args.weight_gradient);
        in_shares(groups_of(width_), [&](std::int64_t first, std::int64_t groups) {
            for (std::int64_t column = first * kLanes; column < std::min(width_, (first + groups) * kLanes);
                 column += kLanes) {
                const std::int64_t count = std::min(kLanes, width_ - column);
                double scale[kLanes], shift[kLanes];
                norm_weight_gradient(rows_of(args, args.saved, 0, rows_), floats(args.output_gradient), column, count,
                                     scale, shift);
                for (std::int64_t l = 0; l < count; ++l) {
                    gradient[column + l] += static_cast<float>(scale[l]);
                    if (centred_)
                        gradient[width_ + column + l] += static_cast<float>(shift[l]);
                }
            }
        });
    }

    bool centred_;
    std::int64_t vectors_;  // in the weights, and numbers of the state per row
    std::int64_t rows_, width_;
};

class Gelu : public CpuLayer {
public:
    Gelu(const Layer& layer, int samples)
        : CpuLayer(layer, samples), groups_(groups_of(samples * layer.output.elements())) {}

    void forward(const LayerArgs& args, bool) override {
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            gelu(floats(args.inputs[0]) + first * kLanes, floats(args.output) + first * kLanes, count);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            gelu_gradient(floats(args.inputs[0]) + first * kLanes, floats(args.output_gradient) + first * kLanes,
                          floats(args.input_gradients[0]) + first * kLanes, count);
        });
    }

private:
    std::int64_t groups_;
};

class GatedSilu : public CpuLayer {
public:
    GatedSilu(const Layer& layer, int samples)
        : CpuLayer(layer, samples), groups_(groups_of(samples * layer.output.elements())) {}

    void forward(const LayerArgs& args, bool) override {
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t skip = first * kLanes;
            gated_silu(floats(args.inputs[0]) + skip, floats(args.inputs[1]) + skip, floats(args.output) + skip, count);
        });
    }

    void backward_input(const LayerArgs& args) override {
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t skip = first * kLanes;
            const auto made = [&](std::size_t k) {
                return args.input_gradients[k] ? floats(args.input_gradients[k]) + skip : nullptr;
            };
            gated_silu_gradient(floats(args.inputs[0]) + skip, floats(args.inputs[1]) + skip,
                                floats(args.output_gradient) + skip, made(0), made(1), count);
        });
    }

private:
    std::int64_t groups_;
};

class Rotary : public CpuLayer {
public:
    Rotary(const Layer& layer, int samples)
        : CpuLayer(layer, samples),
          length_(layer.input.height),
          width_(layer.input.width),
          half_(width_ / layer.heads / 2) {
        for (std::int64_t row = 0; row < length_ * layer.slices; ++row)
            for (std::int64_t i = 0; i < half_; ++i) {
                const double angle = rotary_angle(layer.rotary_base, half_, row, i);
                cosines_.push_back(static_cast<float>(std::cos(angle)));
                sines_.push_back(static_cast<float>(std::sin(angle)));
            }
    }

    void forward(const LayerArgs& args, bool) override { turn(args.slice, args.inputs[0], 1, args.output); }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            turn(args.slice, args.output_gradient, -1, args.input_gradients[0]);
    }

private:
    void turn(int slice, const std::byte* from, float direction, std::byte* to) const {
        in_shares(samples_ * length_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t row = first; row < first + count; ++row) {
                const std::int64_t position = (slice * length_ + row % length_) * half_;
                turn_heads(floats(from) + row * width_,
                           {cosines_.data() + position, sines_.data() + position, direction, half_},
                           floats(to) + row * width_, layer_.heads);
            }
        });
    }

    std::int64_t length_, width_, half_;  // half of a head
    std::vector<float> cosines_, sines_;  // {rows of a sequence, half of a head}
};

}  // namespace

extern const LayerRow kEmbedding = row_of<Embedding>(LayerKind::Embedding);
extern const LayerRow kPositionBias = row_of<PositionBias>(LayerKind::PositionBias);
extern const LayerRow kLayerNorm = row_of<RowNorm>(LayerKind::LayerNorm);
extern const LayerRow kRmsNorm = row_of<RowNorm>(LayerKind::RmsNorm);
extern const LayerRow kGelu = row_of<Gelu>(LayerKind::Gelu);
extern const LayerRow kGatedSilu = row_of<GatedSilu>(LayerKind::GatedSilu);
extern const LayerRow kRotary = row_of<Rotary>(LayerKind::Rotary);

}  // namespace pw::cpu

#include "exec/cpu/layers.h"
#include "exec/cpu/parallel.h"

#include <algorithm>

namespace pw::cpu {

namespace {

// Each input, and the output, is blocked if its channels fill whole blocks. Between equal layouts whole pieces are
// copied, otherwise single values of a channel.
class Concat : public CpuLayer {
public:
    Concat(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block), pixels_(std::int64_t{layer.input.height} * layer.input.width) {
        for (int k = 0; k < 2; ++k) {
            Part& part = parts_[k];
            part.dims = input_dims(layer, k);
            part.first = k == 0 ? 0 : layer.input.channels;
            part.alike = is_blocked(part.dims, per_block) == is_blocked(layer.output, per_block);
            part.channels = part.alike && is_blocked(part.dims, per_block) ? per_block : 1;
        }
    }

    void forward(const LayerArgs& args, bool) override {
        for (int k = 0; k < 2; ++k)
            for_pieces(parts_[k], [&](const Piece& in, const Piece& out, std::int64_t count) {
                copy(floats(args.inputs[static_cast<std::size_t>(k)]), in, floats(args.output), out, count);
            });
    }

    void backward_input(const LayerArgs& args) override {
        for (int k = 0; k < 2; ++k)
            if (std::byte* wanted = args.input_gradients[static_cast<std::size_t>(k)])
                for_pieces(parts_[k], [&](const Piece& in, const Piece& out, std::int64_t count) {
                    copy(floats(args.output_gradient), out, floats(wanted), in, count);
                });
    }

private:
    // An input: the offset of its channels in the output, and the number of channels copied at once.
    struct Part {
        Dims dims;
        int first = 0;
        bool alike = true;
        std::int64_t channels = 1;
    };
    // Values in a tensor: the position of the first value, and the distance to the next.
    struct Piece {
        std::int64_t first, step;
    };

    Piece piece(const Dims& dims, std::int64_t sample, std::int64_t channel) const {
        const std::int64_t first = sample * dims.elements();
        if (!is_blocked(dims, per_block_))
            return {first + channel * pixels_, 1};
        const std::int64_t within = channel % per_block_;
        return {first + (channel - within) * pixels_ + within, per_block_};
    }

    static void copy(const float* from, Piece source, float* to, Piece target, std::int64_t count) {
        if (source.step == target.step) {
            std::copy_n(from + source.first, count, to + target.first);
            return;
        }
        for (std::int64_t p = 0; p < count; ++p)
            to[target.first + p * target.step] = from[source.first + p * source.step];
    }

    // Calls visit(piece of the input, piece of the output, values).
    template <class Visit>
    void for_pieces(const Part& part, Visit visit) const {
        const std::int64_t pieces = part.dims.channels / part.channels;
        in_shares(samples_ * pieces, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t k = first; k < first + count; ++k) {
                const std::int64_t sample = k / pieces, channel = k % pieces * part.channels;
                visit(piece(part.dims, sample, channel), piece(layer_.output, sample, part.first + channel),
                      part.channels * pixels_);
            }
        });
    }

    std::int64_t pixels_;
    Part parts_[2];
};

}  // namespace

std::unique_ptr<LayerKernel> make_concat(const Layer& layer, int samples, std::int64_t per_block) {
    return std::make_unique<Concat>(layer, samples, per_block);
}

extern const LayerRow kConcat = row_of_blocks<make_concat>(LayerKind::Concat);

}  // namespace pw::cpu

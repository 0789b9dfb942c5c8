#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"

#include <algorithm>

namespace pw::cpu {

namespace {

// saved: one byte per element in the order of the tensor, whether it passed. The random numbers belong to
// positions in the plain layout, so that every layout drops the same elements.
class Dropout : public CpuLayer {
public:
    Dropout(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block),
          blocked_(is_blocked(layer.output, per_block)),
          pieces_(blocked_ ? layer.output.channels / per_block : 1),
          piece_(layer.output.elements() / pieces_),
          scale_(static_cast<float>(1 / (1 - layer.probability))) {
        bytes_.saved_until_input = aligned(samples * layer.output.elements());
    }

    void forward(const LayerArgs& args, bool save) override {
        for_pieces([&](std::int64_t sample, std::int64_t piece, std::int64_t at) {
            const float* x = floats(args.inputs[0]) + at;
            float* y = floats(args.output) + at;
            const auto first = static_cast<std::uint32_t>((args.slice * pieces_ + piece) * piece_);
            const Drop drop{dropout_key(args.seed, sample), dropout_threshold(layer_.probability), scale_};
            std::byte* mask = args.saved ? args.saved + at : nullptr;
            if (!save)
                std::copy_n(x, piece_, y);
            else if (blocked_)
                drop_block(drop, x, y, mask, first, piece_ / per_block_, per_block_);
            else
                drop_values(drop, x, y, mask, first, piece_);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        for_pieces([&](std::int64_t, std::int64_t, std::int64_t at) {
            scale_passed(floats(args.output_gradient) + at, args.saved + at, floats(args.input_gradients[0]) + at,
                         scale_, piece_);
        });
    }

private:
    // Calls visit(sample, block of its channels, offset of the block's values).
    template <class Visit>
    void for_pieces(Visit visit) const {
        in_shares(samples_ * pieces_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t k = first; k < first + count; ++k)
                visit(k / pieces_, k % pieces_, k * piece_);
        });
    }

    bool blocked_;
    std::int64_t pieces_, piece_;  // pieces per sample, floats per piece
    float scale_;
};

}  // namespace

std::unique_ptr<LayerKernel> make_dropout(const Layer& layer, int samples, std::int64_t per_block) {
    return std::make_unique<Dropout>(layer, samples, per_block);
}

extern const LayerRow kDropout = row_of_blocks<make_dropout>(LayerKind::Dropout);

}  // namespace pw::cpu

// What an encoder before the decoder costs. Its blocks cost what blocks of a decoder of their shape cost.
#include "workloads/transformers/layer_sum.h"

namespace pw {

TransformerLayerCost TransformerLayers::encoder_block(const LayerForm& form, int sequences, double share,
                                                      const LayerPasses& passes) const {
    const TransformerJob own = encoder_job(job_);
    return TransformerLayers(own).block(form, sequences * job_.encoder->images, share, passes);
}

double TransformerLayers::encoder_bytes(int sequences) const {
    const TransformerJob own = encoder_job(job_);
    return TransformerLayers(own).output_bytes(sequences * job_.encoder->images);
}

// Every tensor rank has all patches and the whole matrix. Images need no gradient.
TransformerLayerCost TransformerLayers::patches(int sequences, const LayerPasses& passes) const {
    const Encoder& encoder = *job_.encoder;
    const double rows = static_cast<double>(sequences) * encoder.images * encoder.all_tokens();
    Sum sum = sum_of(sequences, passes);
    sum.products = kernels_.head(rows, encoder.inputs, encoder.blocks.hidden);
    sum.products.input = 0;
    const double values = rows * encoder.blocks.hidden;
    sum.forward = kernels_.moved(3 * kValue * values);  // adds positions
    sum.backward = passes.trained ? kernels_.moved(kValue * values) : 0;
    sum.kernels = 2;
    sum.save(passes.trained ? kValue * rows * encoder.inputs : 0, {});
    sum.parameters.add_other(static_cast<double>(encoder.weights_of_patches() + encoder.other));
    freeze(sum);
    return finished(sum);
}

// Every tensor rank has the whole projector.
TransformerLayerCost TransformerLayers::projector(int sequences, const LayerPasses& passes) const {
    const Encoder& encoder = *job_.encoder;
    const double rows = static_cast<double>(sequences) * encoder.tokens_of_decoder(), hidden = job_.model.hidden;
    const double inputs = encoder.projected(), between = encoder.projector;
    Sum sum = sum_of(sequences, passes);
    const double read = static_cast<double>(sequences) * encoder.images * encoder.all_tokens() * encoder.blocks.hidden;
    sum.forward = kernels_.moved(2 * kValue * read);  // the norm, and the merging of tokens
    sum.backward = kernels_.moved(3 * kValue * read);
    sum.kernels = 1;
    const auto multiply = [&](double from, double to) {
        sum.products += kernels_.head(rows, from, to);
        sum.kernels += 1;
        sum.save(passes.trained ? kValue * rows * from : 0, {});
    };
    multiply(inputs, between > 0 ? between : hidden);
    if (between > 0) {
        sum.forward += kernels_.moved(2 * kValue * rows * between);
        sum.backward += kernels_.moved(3 * kValue * rows * between);
        sum.kernels += 1;
        sum.save(kValue * rows * between, {});
        multiply(between, hidden);
    }
    sum.parameters.add_other(
        static_cast<double>(encoder.weights_of_projector(job_.model.hidden) + encoder.other_of_projector));
    freeze(sum);
    return finished(sum);
}

}  // namespace pw

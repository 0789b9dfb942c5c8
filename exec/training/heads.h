// Heads in the rows of a sequence: the columns of attention's tensors.
#pragma once

#include "workloads/costs/costs.h"
#include "workloads/models/layer_graph.h"

#include <cstddef>
#include <cstdint>

namespace pw {

// The columns with the queries, keys or values of all heads, in the rows of one of a layer's tensors.
struct HeadColumns {
    std::size_t tensor;              // number of the input
    std::int64_t row_width, column;  // values in a row of it, and the first value of head 0
    std::int64_t shared_by = 1;      // heads that read the same columns
};

// The columns of attention, whose input has all three next to each other, or of grouped attention with three inputs.
struct AttentionColumns {
    explicit AttentionColumns(const Layer& layer)
        : heads(layer.heads), rows(layer.input.height), head_width(layer.output.width / layer.heads) {
        const std::int64_t width = layer.output.width;
        output = {0, width, 0};
        if (layer.kind == LayerKind::Attention) {
            queries = {0, 3 * width, 0};
            keys = {0, 3 * width, width};
            values = {0, 3 * width, 2 * width};
            return;
        }
        queries = output;
        keys = {1, head_width * layer.key_value_heads, 0, heads / layer.key_value_heads};
        values = keys;
        values.tensor = 2;
    }

    // Returns the position in its tensor of the first value of a head. `head` counts the heads of all samples.
    std::int64_t first_of(std::int64_t head, const HeadColumns& in) const {
        const std::int64_t sample = head / heads, own = head % heads / in.shared_by;
        return sample * rows * in.row_width + in.column + own * head_width;
    }

    // Return the same for keys or values whose gradients are kept for an earlier slice (EarlierSlice::gradients), and
    // the width of their rows.
    std::int64_t first_kept(std::int64_t head, const HeadColumns& in) const {
        const std::int64_t sample = head / heads, own = head % heads / in.shared_by;
        return sample * rows * kept_width() + own * head_width;
    }
    std::int64_t kept_width() const { return heads / keys.shared_by * head_width; }

    std::int64_t heads, rows, head_width;  // per sample
    HeadColumns queries, keys, values, output;
};

// Returns the bytes of the kept gradients of keys, which the gradients of values follow. `output` is
// LayerBytes::output of the layer.
inline Bytes kept_bytes(Bytes output, const AttentionColumns& columns) {
    return aligned(output / columns.keys.shared_by);
}

}  // namespace pw

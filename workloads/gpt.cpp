#include "workloads/gpt.h"

#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

constexpr int kInnerWidths = 4;  // of a block's two linear layers, per width outside

// Adds layers to a chain with residual sums; each call returns the number of the new layer.
class GptBuilder {
public:
    GptBuilder(Model& model, const GptShape& shape) : graph_(model.layers), shape_(shape) {}

    int embedding(const std::string& name) {
        Layer layer = rows(name, LayerKind::Embedding, 1, shape_.width);
        layer.vocabulary = shape_.vocabulary;
        return add_layer(graph_, std::move(layer), {});
    }

    // Of the kinds that leave the width as it is.
    int same(const std::string& name, LayerKind kind, int input) {
        return add_layer(graph_, rows(name, kind, width_of(input), width_of(input)), {input});
    }

    int linear(const std::string& name, int input, int width) {
        return add_layer(graph_, rows(name, LayerKind::RowLinear, width_of(input), width), {input});
    }

    int head(const std::string& name, int input, const std::string& owner) {
        Layer layer = rows(name, LayerKind::RowLinear, shape_.width, shape_.vocabulary);
        layer.bias = false;
        layer.tied_to = owner;
        return add_layer(graph_, std::move(layer), {input});
    }

    int attention(const std::string& name, int input) {
        Layer layer = rows(name, LayerKind::Attention, 3 * shape_.width, shape_.width);
        layer.heads = shape_.heads;
        return add_layer(graph_, std::move(layer), {input});
    }

    int dropout(const std::string& name, int input) {
        if (shape_.dropout == 0)
            return input;
        Layer layer = rows(name, LayerKind::Dropout, shape_.width, shape_.width);
        layer.probability = shape_.dropout;
        return add_layer(graph_, std::move(layer), {input});
    }

    int sum(const std::string& name, int first, int second) {
        return add_layer(graph_, rows(name, LayerKind::Add, shape_.width, shape_.width), {first, second});
    }

    int loss(LayerKind kind, int input) {
        Layer layer = rows("loss", kind, width_of(input), 1);
        layer.output = {1, 1, 1};
        return add_layer(graph_, std::move(layer), {input});
    }

private:
    int width_of(int layer) const { return graph_[static_cast<std::size_t>(layer)].output.width; }

    Layer rows(const std::string& name, LayerKind kind, int from, int to) const {
        const int length = shape_.sequence_length;
        return {.name = name, .kind = kind, .input = {1, length, from}, .output = {1, length, to}};
    }

    LayerGraph& graph_;
    const GptShape& shape_;
};

int block(GptBuilder& build, const std::string& name, int input, int width) {
    int side = build.same(name + ".ln_1", LayerKind::LayerNorm, input);
    side = build.linear(name + ".attn.c_attn", side, 3 * width);
    side = build.attention(name + ".attn.core", side);
    side = build.linear(name + ".attn.c_proj", side, width);
    side = build.dropout(name + ".attn.resid_dropout", side);
    const int middle = build.sum(name + ".add_1", side, input);
    side = build.same(name + ".ln_2", LayerKind::LayerNorm, middle);
    side = build.linear(name + ".mlp.c_fc", side, kInnerWidths * width);
    side = build.same(name + ".mlp.act", LayerKind::Gelu, side);
    side = build.linear(name + ".mlp.c_proj", side, width);
    side = build.dropout(name + ".mlp.dropout", side);
    return build.sum(name + ".add_2", side, middle);
}

void check(const GptShape& shape) {
    if (std::min({shape.sequence_length, shape.vocabulary, shape.width, shape.blocks, shape.heads}) < 1)
        fail("gpt of {} tokens out of {}, {} wide, {} blocks, {} heads: all must be at least 1", shape.sequence_length,
             shape.vocabulary, shape.width, shape.blocks, shape.heads);
    if (shape.width % shape.heads != 0)
        fail("gpt: a width of {} has no {} heads of equal width", shape.width, shape.heads);
}

}  // namespace

Model build_gpt(const GptShape& shape, LayerKind loss) {
    check(shape);
    Model model{"gpt", {1, shape.sequence_length, 1}, shape.vocabulary, {}};
    GptBuilder build(model, shape);
    int last = build.embedding("wte");
    last = build.same("wpe", LayerKind::PositionBias, last);
    last = build.dropout("drop", last);
    for (int number = 0; number < shape.blocks; ++number)
        last = block(build, fmt::format("h.{}", number), last, shape.width);
    last = build.same("ln_f", LayerKind::LayerNorm, last);
    last = build.head("lm_head", last, "wte");
    build.loss(loss, last);
    return model;
}

}  // namespace pw

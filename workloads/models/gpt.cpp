#include "workloads/models/gpt.h"

#include "workloads/error.h"
#include "workloads/models/model_builder.h"
#include "workloads/models/models.h"

#include <algorithm>

namespace pw {

namespace {

constexpr int kInnerWidths = 4;  // of a block's two linear layers, per width outside

class GptBuilder : public Builder {
public:
    GptBuilder(Model& model, const GptShape& shape) : Builder(model), shape_(shape) {}

    int embedding(const std::string& name) {
        Layer layer = rows(name, LayerKind::Embedding, 1, shape_.width);
        layer.vocabulary = shape_.vocabulary;
        return add(std::move(layer), {kData});
    }

    // Adds a layer of a kind that keeps the width.
    int same(const std::string& name, LayerKind kind, int input) {
        const int width = made_by(input).width;
        return add(rows(name, kind, width, width), {input});
    }

    int row_linear(const std::string& name, int input, int width) {
        return add(rows(name, LayerKind::RowLinear, made_by(input).width, width), {input});
    }

    int head(const std::string& name, int input, const std::string& owner) {
        Layer layer = rows(name, LayerKind::RowLinear, shape_.width, shape_.vocabulary);
        layer.bias = false;
        layer.tied_to = owner;
        return add(std::move(layer), {input});
    }

    int attention(const std::string& name, int input) {
        Layer layer = rows(name, LayerKind::Attention, 3 * shape_.width, shape_.width);
        layer.heads = shape_.heads;
        return add(std::move(layer), {input});
    }

    int dropout_if_any(const std::string& name, int input) {
        return shape_.dropout > 0 ? dropout(name, input, shape_.dropout) : input;
    }

    int sum(const std::string& name, int first, int second) {
        return add(rows(name, LayerKind::Add, shape_.width, shape_.width), {first, second});
    }

private:
    Layer rows(const std::string& name, LayerKind kind, int from, int to) const {
        const int length = shape_.sequence_length;
        return {.name = name, .kind = kind, .input = {1, length, from}, .output = {1, length, to}};
    }

    const GptShape& shape_;
};

int block(GptBuilder& build, const std::string& name, int input, int width) {
    int side = build.same(name + ".ln_1", LayerKind::LayerNorm, input);
    side = build.row_linear(name + ".attn.c_attn", side, 3 * width);
    side = build.attention(name + ".attn.core", side);
    side = build.row_linear(name + ".attn.c_proj", side, width);
    side = build.dropout_if_any(name + ".attn.resid_dropout", side);
    const int middle = build.sum(name + ".add_1", side, input);
    side = build.same(name + ".ln_2", LayerKind::LayerNorm, middle);
    side = build.row_linear(name + ".mlp.c_fc", side, kInnerWidths * width);
    side = build.same(name + ".mlp.act", LayerKind::Gelu, side);
    side = build.row_linear(name + ".mlp.c_proj", side, width);
    side = build.dropout_if_any(name + ".mlp.dropout", side);
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
    last = build.dropout_if_any("drop", last);
    for (int number = 0; number < shape.blocks; ++number)
        last = block(build, fmt::format("h.{}", number), last, shape.width);
    last = build.same("ln_f", LayerKind::LayerNorm, last);
    last = build.head("lm_head", last, "wte");
    build.loss(loss, last);
    return model;
}

extern const BuiltInModel kGpt{.name = "gpt",
                               .keys = "sequence_length vocabulary embedding blocks heads dropout",
                               .image_size = kUsualImageSize,  // printed in its configs, never read
                               .labels = Labels::PerToken,
                               .build =
                                   [](const ModelOptions& options, int, LayerKind loss) {
                                       return build_gpt({options.sequence_length, options.vocabulary, options.embedding,
                                                         options.blocks, options.heads, options.dropout},
                                                        loss);
                                   },
                               .module_of = [](const std::string& name) {  // in GPT2LMHeadModel of Hugging Face
                                   return name == "lm_head" ? name : "transformer." + name;
                               }};

}  // namespace pw

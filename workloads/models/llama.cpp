#include "workloads/models/llama.h"

#include "workloads/error.h"
#include "workloads/models/model_builder.h"
#include "workloads/models/models.h"

#include <algorithm>

namespace pw {

namespace {

class LlamaBuilder : public Builder {
public:
    LlamaBuilder(Model& model, const LlamaShape& shape) : Builder(model), shape_(shape) {}

    int embedding(const std::string& name) {
        Layer layer = rows(name, LayerKind::Embedding, 1, shape_.width);
        layer.vocabulary = shape_.vocabulary;
        return add(std::move(layer), {kData});
    }

    int norm(const std::string& name, int input) {
        return add(rows(name, LayerKind::RmsNorm, shape_.width, shape_.width), {input});
    }

    int linear_rows(const std::string& name, int input, int width) {
        Layer layer = rows(name, LayerKind::RowLinear, made_by(input).width, width);
        layer.bias = false;
        return add(std::move(layer), {input});
    }

    int rotary(const std::string& name, int input, int heads) {
        const int width = made_by(input).width;
        Layer layer = rows(name, LayerKind::Rotary, width, width);
        layer.heads = heads;
        layer.rotary_base = shape_.rotary_base;
        return add(std::move(layer), {input});
    }

    int attention(const std::string& name, int queries, int keys, int values) {
        Layer layer = rows(name, LayerKind::GroupedAttention, shape_.width, shape_.width);
        layer.heads = shape_.heads;
        layer.key_value_heads = shape_.key_value_heads;
        return add(std::move(layer), {queries, keys, values});
    }

    int two_inputs(const std::string& name, LayerKind kind, int first, int second) {
        const int width = made_by(first).width;
        return add(rows(name, kind, width, width), {first, second});
    }

private:
    Layer rows(const std::string& name, LayerKind kind, int from, int to) const {
        const int length = shape_.sequence_length;
        return {.name = name, .kind = kind, .input = {1, length, from}, .output = {1, length, to}};
    }

    const LlamaShape& shape_;
};

int block(LlamaBuilder& build, const std::string& name, int input, const LlamaShape& shape) {
    const int key_width = shape.width / shape.heads * shape.key_value_heads;
    int side = build.norm(name + ".input_layernorm", input);
    int queries = build.linear_rows(name + ".self_attn.q_proj", side, shape.width);
    int keys = build.linear_rows(name + ".self_attn.k_proj", side, key_width);
    const int values = build.linear_rows(name + ".self_attn.v_proj", side, key_width);
    queries = build.rotary(name + ".self_attn.q_rotary", queries, shape.heads);
    keys = build.rotary(name + ".self_attn.k_rotary", keys, shape.key_value_heads);
    side = build.attention(name + ".self_attn.core", queries, keys, values);
    side = build.linear_rows(name + ".self_attn.o_proj", side, shape.width);
    const int middle = build.two_inputs(name + ".add_1", LayerKind::Add, side, input);
    side = build.norm(name + ".post_attention_layernorm", middle);
    const int gate = build.linear_rows(name + ".mlp.gate_proj", side, shape.inner);
    const int up = build.linear_rows(name + ".mlp.up_proj", side, shape.inner);
    side = build.two_inputs(name + ".mlp.act", LayerKind::GatedSilu, gate, up);
    side = build.linear_rows(name + ".mlp.down_proj", side, shape.width);
    return build.two_inputs(name + ".add_2", LayerKind::Add, side, middle);
}

LlamaShape completed(LlamaShape shape) {
    if (shape.key_value_heads == 0)
        shape.key_value_heads = shape.heads;
    if (shape.inner == 0)
        shape.inner = usual_inner_width(shape.width);
    return shape;
}

void check(const LlamaShape& shape) {
    if (std::min({shape.sequence_length, shape.vocabulary, shape.width, shape.blocks, shape.heads,
                  shape.key_value_heads, shape.inner}) < 1)
        fail(
            "llama of {} tokens out of {}, {} wide, {} inside, {} blocks, {} heads, {} of keys: all must be at least 1",
            shape.sequence_length, shape.vocabulary, shape.width, shape.inner, shape.blocks, shape.heads,
            shape.key_value_heads);
    if (shape.width % shape.heads != 0 || shape.width / shape.heads % 2 != 0)
        fail("llama: a width of {} has no {} heads of equal and even width", shape.width, shape.heads);
    if (shape.heads % shape.key_value_heads != 0)
        fail("llama: {} heads cannot share {} heads of keys and values equally", shape.heads, shape.key_value_heads);
    if (shape.rotary_base <= 1)
        fail("llama: a rotary base of {}: it must be above 1", shape.rotary_base);
}

}  // namespace

int usual_inner_width(int width) {
    const std::int64_t multiple = width < 1024 ? 8 : 256, wanted = std::int64_t{8} * width / 3;
    return static_cast<int>((wanted + multiple - 1) / multiple * multiple);
}

Model build_llama(const LlamaShape& given, LayerKind loss) {
    const LlamaShape shape = completed(given);
    check(shape);
    Model model{"llama", {1, shape.sequence_length, 1}, shape.vocabulary, {}};
    LlamaBuilder build(model, shape);
    int last = build.embedding("model.embed_tokens");
    for (int number = 0; number < shape.blocks; ++number)
        last = block(build, fmt::format("model.layers.{}", number), last, shape);
    last = build.norm("model.norm", last);
    last = build.linear_rows("lm_head", last, shape.vocabulary);
    build.loss(loss, last);
    return model;
}

extern const BuiltInModel kLlama{
    .name = "llama",
    .keys = "sequence_length vocabulary embedding blocks heads key_value_heads inner rotary_base",
    .image_size = kUsualImageSize,  // printed in its configs, never read
    .labels = Labels::PerToken,
    .build = [](const ModelOptions& options, int, LayerKind loss) {
        return build_llama({options.sequence_length, options.vocabulary, options.embedding, options.blocks,
                            options.heads, options.key_value_heads, options.inner, options.rotary_base},
                           loss);
    }};

}  // namespace pw

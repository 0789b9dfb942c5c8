// The keys of `workload.encoder`, and what of a transformer is trained.
#include "job/config/blocks.h"
#include "workloads/models/recomputed_layers.h"
#include "workloads/transformers/layer_list.h"

#include <algorithm>

namespace pw {
namespace {

constexpr auto kBlocks = &Encoder::blocks;
constexpr std::int64_t kMostTokens = 1 << 24;

constexpr KeyOf<Encoder> kEncoderKeys[] = {
    {"images", integer_key<&Encoder::images>(1, 65'536)},
    {"tokens", integer_key<&Encoder::tokens>(1, kMostTokens)},
    {"merged", integer_key<&Encoder::merged>(1, 65'536)},
    {"hidden", integer_key<kBlocks, &Transformer::hidden>(1, 131'072)},
    {"layers", integer_key<kBlocks, &Transformer::layers>(1, 1024)},
    {"heads", integer_key<kBlocks, &Transformer::heads>(1, 4096)},
    {"inner", integer_key<kBlocks, &Transformer::ffn>(1, 1'048'576)},
    {"gated", flag_key<kBlocks, &Transformer::gated>()},
    {"inputs", integer_key<&Encoder::inputs>(1, 1'048'576)},
    {"projector", integer_key<&Encoder::projector>(0, 1'048'576)},
};

// An encoder without a config.json has blocks with LayerNorm and biases.
Encoder encoder_of(const Config& config) {
    const WorkloadConfig& workload = config.workload;
    if (is_transformer_config(workload.model) && workload.transformer)
        if (std::optional<Encoder> encoder = read_encoder_config(workload.model, *workload.transformer))
            return *encoder;
    Encoder encoder;
    encoder.blocks.bias = true;
    return encoder;
}

void check_shape(const Yaml& at, const Config& config, Encoder& encoder) {
    Transformer& blocks = encoder.blocks;
    const struct {
        const char* key;
        int value;
    } needed[] = {{"tokens", encoder.tokens}, {"hidden", blocks.hidden}, {"layers", blocks.layers},
                  {"heads", blocks.heads},    {"inner", blocks.ffn},     {"inputs", encoder.inputs}};
    for (const auto& [key, value] : needed)
        if (value == 0) {
            at.complain(fmt::format("'workload.encoder' has no {}, and {} does not say", key, config.workload.model),
                        fmt::format("write {} into workload.encoder", key));
            return;
        }
    blocks.key_value_heads = blocks.heads;
    blocks.head_width = std::max(1, blocks.hidden / blocks.heads);
    if (blocks.hidden % blocks.heads != 0)
        at.complain(
            fmt::format("{} heads of the encoder do not divide a hidden size of {}", blocks.heads, blocks.hidden),
            "correct one of them");
    if (encoder.tokens % encoder.merged != 0)
        at.complain(fmt::format("{} tokens of an image are not merged by {}", encoder.tokens, encoder.merged),
                    "write a number of tokens that `merged` divides");
    if (const int length = config.workload.options.sequence_length; encoder.tokens_of_decoder() > length)
        at.complain(fmt::format("{} images are {} tokens of the decoder, but sequences have {}", encoder.images,
                                encoder.tokens_of_decoder(), length),
                    "write fewer images, or a larger sequence_length");
}

// The encoder is counted now.
void forget_notes_on(const std::string& part, std::vector<std::string>& not_counted) {
    std::erase_if(not_counted, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

}  // namespace

void read_encoder(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    if (!at.present() || !config.workload.transformer)
        return;
    Encoder& encoder = config.workload.encoder.emplace(encoder_of(config));
    read_keys<Encoder>(kEncoderKeys, at, encoder, reading);
    if (!encoder.blocks.name.empty())
        forget_notes_on(encoder.blocks.name, config.workload.transformer->not_counted);
}

std::string print_encoder(const Config& config) {
    Encoder usual;
    usual.blocks.bias = true;
    return config.workload.encoder ? print_map<Encoder>(kEncoderKeys, *config.workload.encoder, usual) : "";
}

std::string encoder_schema() { return object_schema<Encoder, kEncoderKeys>(); }

void check_encoder_of(const Yaml& at, Config& config) {
    if (config.workload.encoder && at["encoder"].source().clean())
        check_shape(at["encoder"], config, *config.workload.encoder);
}

void check_trained_layers(const Yaml& at, const WorkloadConfig& workload) {
    TransformerJob job;
    job.model = *workload.transformer;
    job.encoder = workload.encoder;
    job.lora = workload.lora;
    job.frozen = workload.frozen;
    const std::vector<ListedLayer> layers = listed_layers(job);
    const Yaml frozen = at["frozen"];
    const auto unknown = std::ranges::find_if(workload.frozen, [&](const std::string& pattern) {
        return std::ranges::none_of(layers, [&](const ListedLayer& layer) { return matches(layer.name(), pattern); });
    });
    if (unknown != workload.frozen.end())
        frozen.complain(fmt::format("no layer of {} is called '{}'", job.model.name, *unknown),
                        "name layers as in encoder, encoder.0, projector, embedding, block.0-15, head; '*' matches any "
                        "characters");
    if (std::ranges::none_of(layers,
                             [](const ListedLayer& layer) { return layer.passes.trained || layer.passes.adapters; }))
        frozen.complain("all layers are frozen: nothing is trained", "leave a layer out");
    const auto is_trained = [&](ListedLayer::Kind kind) {
        return std::ranges::find(layers, kind, &ListedLayer::kind)->passes.trained;
    };
    if (job.model.tied && is_trained(ListedLayer::Kind::Embedding) != is_trained(ListedLayer::Kind::Head))
        frozen.complain(
            fmt::format("the embedding and the head of {} share their table, and only one of them is frozen",
                        job.model.name),
            "name both, or neither");
}

}  // namespace pw

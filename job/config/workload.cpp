// The block `workload`.
#include "job/config/blocks.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/data/data_sources.h"

#include <algorithm>
#include <limits>

namespace pw {
namespace {

std::vector<std::string_view> model_names() {
    std::vector<std::string_view> names;
    for (const BuiltInModel* model : built_in_models())
        names.push_back(model->name);
    return names;
}

// "meta-llama/Llama-3-8B-Instruct" is llama-3-8b: the longest name in the last part of a path.
std::optional<std::string_view> named_in(const std::string& model, const std::vector<std::string_view>& known) {
    std::string name = model.substr(model.rfind('/') + 1);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return c == '_' ? '-' : std::tolower(c); });
    if (const std::optional<std::string_view> near = nearest(name, known))
        return near;
    std::optional<std::string_view> longest;
    for (const std::string_view candidate : known)
        if (name.find(candidate) != std::string::npos && (!longest || candidate.size() > longest->size()))
            longest = candidate;
    return longest;
}

// Reads the model's name; empty if it is missing or unknown. Which other keys are right depends on the model.
std::string model_in(const Yaml& at, KeyReading& reading, Config& config) {
    const std::vector<std::string_view> models = model_names();
    const std::string known = fmt::format(
        "models: {}, a transformer of `pipewright list transformers`, a config.json, or a file with the times of "
        "layers: *.yaml, *.json, *.csv or *.graph.txt",
        fmt::join(models, ", "));
    const std::string model = at.text();
    if (const Transformer* transformer = find_transformer(model)) {
        config.workload.transformer = *transformer;
    } else if (is_transformer_config(absolute_path(reading.folder, model))) {
        std::string path = reading.path_of(model);
        config.workload.transformer = read_transformer_config(path);
        return path;
    } else if (model.empty()) {
        if (!at.present() || at.is_text())
            at.complain("'workload.model' is missing",
                        fmt::format("write workload: {{model: {}}}; {}", models.front(), known));
    } else if (model_file(model) != ModelFile::None) {
        ModelOptions& options = config.workload.options;
        options.blocks = options.embedding = options.sequence_length = 0;  // what the file says
        return reading.path_of(model);
    } else if (find_model(model) == nullptr) {
        std::vector<std::string_view> all = models;
        for (const Transformer& preset : transformer_presets())
            all.push_back(preset.name);
        if (const std::optional<std::string_view> guess = named_in(model, all))
            at.complain(fmt::format("unknown model '{}'", model), fmt::format("did you mean '{}'? {}", *guess, known));
        else
            at.complain(fmt::format("unknown model '{}'", model), known);
        return "";
    }
    return model;
}

void read_model(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    config.workload.model = model_in(at, reading, config);
}

std::vector<std::string_view> dataset_names() {
    std::vector<std::string_view> names;
    for (const DataSource& source : data_sources())
        names.push_back(source.name);
    return names;
}

void read_dataset(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.workload.dataset = at.choice(config.workload.dataset, dataset_names());
}

const BuiltInModel* model_of(const Config& config) { return find_model(config.workload.model); }

std::string print_dataset(const Config& config) {
    const std::string& dataset = config.workload.dataset;
    const BuiltInModel* model = model_of(config);
    const bool is_read = model != nullptr && model->build != nullptr;
    return is_read || dataset != WorkloadConfig{}.dataset ? dataset : "";
}

std::string print_if_images(const Config& config, int value) {
    const BuiltInModel* model = model_of(config);
    return model != nullptr && reads_images(*model) ? print_plain(value) : "";
}

// Keys that only some built-in models take.
using Takes = bool (*)(const BuiltInModel& model, std::string_view key);

template <Takes takes_it>
std::string takers(std::string_view key) {
    std::vector<std::string_view> names;
    for (const BuiltInModel* model : built_in_models())
        if (takes_it(*model, key))
            names.push_back(model->name);
    return fmt::format("{}", fmt::join(names, ", "));
}

// Returns true for all keys if the model is missing or unknown.
template <Takes takes_it>
bool is_for_model(const Config& config, std::string_view key) {
    const BuiltInModel* model = model_of(config);
    return config.workload.model.empty() || (model != nullptr && takes_it(*model, key));
}

bool takes_images(const BuiltInModel& model, std::string_view) { return reads_images(model); }
bool has_own_times(const BuiltInModel& model, std::string_view) { return model.build == nullptr; }
bool is_for_uniform(const Config& config, std::string_view) { return is_uniform(config); }

constexpr KeyOf<ImageChanges> kAugmentKeys[] = {
    {"crop_padding", integer_key<&ImageChanges::crop_padding>(0, 4096)},
    {"flip", flag_key<&ImageChanges::flip>()},
};
constexpr KeyOf<ImageChanges> kNormaliseKeys[] = {
    {"mean", numbers_key<&ImageChanges::mean>(0, 1)},
    {"std", numbers_key<&ImageChanges::deviation>(1e-6, 1)},
};

void read_augment(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    read_keys<ImageChanges>(kAugmentKeys, at, config.workload.changes, reading);
}

std::string print_augment(const Config& config) {
    const ImageChanges& changes = config.workload.changes;
    return changes.crop_padding > 0 || changes.flip ? print_map<ImageChanges>(kAugmentKeys, changes, {}) : "";
}

void read_normalise(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    ImageChanges& changes = config.workload.changes;
    read_keys<ImageChanges>(kNormaliseKeys, at, changes, reading);
    if (at.present() && (changes.mean.empty() || changes.mean.size() != changes.deviation.size()))
        at.complain("'workload.normalise' needs equally many values of mean and std",
                    "write one of each per channel, or remove the key");
}

std::string print_normalise(const Config& config) {
    const ImageChanges& changes = config.workload.changes;
    return changes.mean.empty() ? "" : print_map<ImageChanges>(kNormaliseKeys, changes, {});
}

Bytes read_size(const Yaml& at, Bytes fallback) {
    const Bytes size = at.bytes(fallback);
    if (size <= kLargestSize)
        return size;
    at.complain(fmt::format("'{}' is {}", at.path(), print_bytes(size)),
                fmt::format("it must be at most {}", exact_bytes(kLargestSize)));
    return fallback;
}

Ns read_stage_time(const Yaml& at, Ns fallback) { return read_time(at, fallback); }

// One value for all stages, or a list with one per stage.
template <auto read_one, auto print_one, auto member>
constexpr KeyValue<Config> stage_values_key(std::string_view takes, std::string_view schema) {
    return {special(takes, schema),
            [](const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
                auto& values = config.workload.uniform.*member;
                const auto fallback =
                    values.empty() ? typename std::decay_t<decltype(values)>::value_type{} : values.front();
                values.clear();
                if (!at.is_list()) {
                    values.push_back(read_one(at, fallback));
                    return;
                }
                for (const Yaml& item : at.items())
                    values.push_back(read_one(item, fallback));
                if (values.empty())
                    at.complain(fmt::format("'{}' is empty", at.path()),
                                "write one value, or a list with one value per stage");
                else
                    reading.claims.push_back({at, static_cast<int>(values.size()),
                                              fmt::format("'{}' has {} values", at.path(), values.size())});
            },
            [](const Config& config) {
                const auto& values = config.workload.uniform.*member;
                return values.empty() ? std::string() : print_list(values, print_one);
            }};
}

template <auto member>
constexpr KeyValue<Config> times_key() {
    return stage_values_key<read_stage_time, exact_time, member>("time, or a list",
                                                                 R"({"anyOf": [{"$ref": "#/$defs/time"},
          {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/time"}}]})");
}
template <auto member>
constexpr KeyValue<Config> sizes_key() {
    return stage_values_key<read_size, exact_bytes, member>("size, or a list", R"({"anyOf": [{"$ref": "#/$defs/size"},
          {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/size"}}]})");
}

void read_stages_of_workload(const KeyDomain& domain, const Yaml& at, Config&, KeyReading& reading) {
    const auto stages = static_cast<int>(at.integer(0, domain.least, domain.most));
    reading.claims.push_back({at, stages, fmt::format("'workload.stages' is {}", stages)});
}

using Workload = WorkloadConfig;
using Options = ModelOptions;
using Uniform = UniformWorkload;
constexpr auto kWorkload = &Config::workload;
constexpr auto kOptions = &Workload::options;
constexpr auto kUniform = &Workload::uniform;

constexpr const char* kGalvatron = "profiles of Galvatron";

// A number of a model that a file may lack (0).
template <auto member>
constexpr KeyValue<Config> if_known(std::int64_t least, std::int64_t most) {
    return printed_as(
        integer_key<kWorkload, kOptions, member>(least, most), +[](const Config& config) {
            const int value = config.workload.options.*member;
            return value > 0 ? print_plain(value) : "";
        });
}

// The models that a key is for.
constexpr KeyLimit<Config> kOfSome{is_for_model<takes_key>, takers<takes_key>};
bool is_for_galvatron(const Config& config, std::string_view) { return may_be_galvatron(config.workload.model); }
constexpr KeyLimit<Config> kOfGalvatron{is_for_galvatron, [](std::string_view) -> std::string { return kGalvatron; }};
constexpr KeyLimit<Config> kOfBlocks{
    [](const Config& config, std::string_view key) {
        return is_for_model<takes_key>(config, key) || is_for_galvatron(config, key);
    },
    [](std::string_view key) { return fmt::format("{}, {}", takers<takes_key>(key), kGalvatron); }};
constexpr KeyLimit<Config> kOfSequences{
    [](const Config& config, std::string_view key) { return is_transformer(config) || kOfBlocks.is_for(config, key); },
    [](std::string_view key) { return kOfBlocks.words(key) + ", transformers"; }};
constexpr KeyLimit<Config> kOfImages{is_for_model<takes_images>, takers<takes_images>};
constexpr KeyLimit<Config> kOfUniform{is_for_uniform, takers<has_own_times>, Elsewhere::RefusedUnread};

constexpr ConfigKey kWorkloadKeys[] = {
    {"model",
     {special("a model, or a [file](#models-from-files)", R"({"type": "string", "minLength": 1})"), read_model,
      [](const Config& config) { return quoted(config.workload.model); },
      [](Config& config) { return &config.workload.model; }},
     KeyShown::Always,
     "required",
     "`pipewright list models` names the models. Files are `*.yaml`, `*.json`, `*.csv`, `*.graph.txt`"},
    {"image_size",
     printed_as(
         integer_key<kWorkload, kOptions, &Options::image_size>(1, 4096),
         +[](const Config& config) { return print_if_images(config, config.workload.options.image_size); }),
     KeyShown::Always, "224, for mlp 28 (with cifar10 32), for unet 64",
     "height and width in pixels: for resnet50 at least 32, for unet a multiple of 2^levels"},
    {"classes",
     printed_as(
         integer_key<kWorkload, kOptions, &Options::classes>(1, 65'535),
         +[](const Config& config) { return print_if_images(config, config.workload.options.classes); }),
     KeyShown::Always, "10", "with cifar10 and mnist at least 10"},
    {"dataset",
     {{.kind = KeyKind::Choice, .names = dataset_names}, read_dataset, print_dataset},
     KeyShown::Always,
     "`synthetic`",
     "gpt and llama take `synthetic` and `text`, the remaining models all except `text` (see [data.md](data.md))"},
    {"path",
     path_key<kWorkload, &Workload::path>(),
     KeyShown::IfSet,
     "none",
     "folder of cifar10 or mnist, file of text",
     {},
     KeyReader::Runs},
    {"hidden", integers_key<kWorkload, kOptions, &Options::hidden>(1, 1'000'000), KeyShown::Always, "",
     "widths of the layers before the last (`[]`: no such layers)", kOfSome},
    {"base_channels", integer_key<kWorkload, kOptions, &Options::base_channels>(1, 4096), KeyShown::Always, "",
     "channels of the first level, doubled at every further level. Below 8 channels the `cpu` backend has no fast "
     "kernels",
     kOfSome},
    {"levels", integer_key<kWorkload, kOptions, &Options::levels>(1, 8), KeyShown::Always, "",
     "how often the image is halved", kOfSome},
    {"sequence_length", if_known<&Options::sequence_length>(1, 1'048'576), KeyShown::Always,
     "64, in a profile its only length", "tokens of a sample", kOfSequences},
    {"vocabulary", integer_key<kWorkload, kOptions, &Options::vocabulary>(1, 1'000'000), KeyShown::Always, "",
     "different tokens, with text at least 256", kOfSome},
    {"embedding", if_known<&Options::embedding>(1, 65'536), KeyShown::Always, "128, see [profiles](#models-from-files)",
     "width of a token's vector", kOfBlocks},
    {"blocks", if_known<&Options::blocks>(1, 1024), KeyShown::Always, "4, see [profiles](#models-from-files)",
     "number of blocks", kOfBlocks},
    {"memory_profile", path_key<kWorkload, &Workload::memory_profile>(), KeyShown::IfSet,
     "`memory_*.json` next to `computation_*.json`", "file with the sizes of a profile, whose times `model` has",
     kOfGalvatron},
    {"heads", integer_key<kWorkload, kOptions, &Options::heads>(1, 1024), KeyShown::Always, "",
     "number of heads of attention, a divisor of `embedding`", kOfSome},
    {"key_value_heads", integer_key<kWorkload, kOptions, &Options::key_value_heads>(1, 1024), KeyShown::IfSet,
     "as many as `heads`", "number of heads of attention's keys and values, a divisor of `heads`", kOfSome},
    {"inner", integer_key<kWorkload, kOptions, &Options::inner>(1, 1'000'000), KeyShown::IfSet,
     "8/3 of `embedding`, rounded up to a multiple of 256, or of 8 below 1024", "width of the gated linear layers",
     kOfSome},
    {"rotary_base", number_key<kWorkload, kOptions, &Options::rotary_base>(1.001, 1e12), KeyShown::IfSet, "",
     "base of the angles of positions (`rope_theta`)", kOfSome, KeyReader::Runs},
    {"dropout", number_key<kWorkload, kOptions, &Options::dropout>(0, 0.999), KeyShown::IfSet, "",
     "share of the values that are dropped after every hidden layer of mlp, and in gpt after the embedding and "
     "before every residual sum. With 0 the model has no such layers",
     kOfSome},
    {"augment",
     {special("`{crop_padding, flip}`", "%", object_schema<ImageChanges, kAugmentKeys>), read_augment, print_augment},
     KeyShown::Always,
     "none",
     "as in `{crop_padding: 4, flip: true}`: random crops of images with a border of this many black pixels, 0 to "
     "4096, "
     "and random flips, see [data.md](data.md#what-the-model-reads)",
     kOfImages,
     KeyReader::Runs},
    {"normalise",
     {special("`{mean, std}`", "%", object_schema<ImageChanges, kNormaliseKeys>), read_normalise, print_normalise},
     KeyShown::Always,
     "the data set's",
     "a `mean` and a `std` per channel, of pixels in [0, 1]",
     kOfImages,
     KeyReader::Runs},
    {"stages",
     {{.kind = KeyKind::Integer, .least = 1, .most = kMostStages, .may_be_empty = true},
      read_stages_of_workload,
      [](const Config& config) { return print_plain(config.workload.uniform.forward.size()); }},
     KeyShown::Always,
     "see [pipeline](#pipeline)",
     "number of stages",
     kOfUniform},
    {"forward", times_key<&Uniform::forward>(), KeyShown::Always, "1 us", "time of `F`", kOfUniform},
    {"backward_input", times_key<&Uniform::backward_input>(), KeyShown::Always, "1 us", "time of `I`", kOfUniform},
    {"backward_weight", times_key<&Uniform::backward_weight>(), KeyShown::Always, "1 us",
     "time of `W`. `B` takes `I` + `W`", kOfUniform},
    {"imbalance", number_key<kWorkload, kUniform, &Uniform::imbalance>(0, 1), KeyShown::IfSet, "",
     "for times that are means over the stages, as profilers print them. The last stage, which has the loss, takes "
     "longer by this share of a device's time for a micro-batch (0.07: 7 %), and all earlier stages take less, so "
     "that the mean does not change (a value that makes a time negative is an error)",
     kOfUniform},
    {"activation", sizes_key<&Uniform::activation>(), KeyShown::Always, "1 MB", "allocated at `F`", kOfUniform},
    {"activation_until_weight", sizes_key<&Uniform::activation_until_weight>(), KeyShown::Always, "0 B",
     "the part that is kept until `W` (`I` frees the rest). If this part exceeds `activation`, `I` allocates the "
     "difference, for gradients of outputs that `W` reads, and a full backward (`B`) does not need the difference",
     kOfUniform},
    {"output", sizes_key<&Uniform::output>(), KeyShown::Always, "0 B",
     "tensor sent to the next stage. Its gradient has the same size", kOfUniform},
    {"weights", sizes_key<&Uniform::weights>(), KeyShown::Always, "0 B",
     "gradients and each state of the optimizer take the same size", kOfUniform},
    {"frozen",
     {special("`[layer, …]`, for uniform `[stage, …]`", R"({"$ref": "#/$defs/names"})"), read_frozen, print_frozen},
     KeyShown::IfSet,
     "none",
     "[layers that are not trained](schedules.md#frozen-layers): names of layers or blocks, `*` for any characters, "
     "`h.0-3` for a range, of transformers [parts](transformers.md#frozen-parts)"},
    {"mtp_layers", integer_key<kWorkload, &Workload::mtp_layers>(0, 16), KeyShown::IfSet,
     "`num_nextn_predict_layers` of the `config.json`, else 0",
     "[modules that predict a further token](transformers.md#further-tokens) each", kOfTransformers},
    {"lora",
     {special("`{rank, targets}`", "%", lora_schema), read_lora, print_lora},
     KeyShown::IfSet,
     "none",
     "[adapters](clusters.md#adapters) of `targets`, by default `[qkv, proj, fc1, fc2]`. All else is frozen",
     kOfTransformers},
    {"encoder",
     {special("`{images, tokens, …}`", "%", encoder_schema), read_encoder, print_encoder},
     KeyShown::IfSet,
     "none",
     "an [encoder](transformers.md#encoders) of images or sounds before the decoder, with `images` in each sequence. "
     "The "
     "`config.json` has its shape, or these keys have",
     kOfTransformers},
    {"overlapped_forward_backward", if_given(times_key<&Uniform::pair>()), KeyShown::Always,
     "by `pipeline.pair_exposed`",
     "time of a [pair](schedules.md#pairs) of `F` and `B` that run overlapped. A list has the times by the stage of "
     "`F`",
     kOfUniform},
};

void refuse_keys_of_others(const Yaml& at, const Config& config) {
    const std::string& model = config.workload.model;
    for (const ConfigKey& key : kWorkloadKeys) {
        if (key.is_for(config) || !at[key.name].present())
            continue;
        const std::string owners = key.limit.words(key.name);
        if (key.limit.is_for == is_for_uniform)
            at[key.name].complain(fmt::format("'workload.{}' belongs to model: {}, not to {}", key.name, owners, model),
                                  "remove the key; stages of a real model are set with pipeline.stages");
        else
            at[key.name].complain(fmt::format("'workload.{}' is not for model: {}", key.name, model),
                                  fmt::format("remove the key; it belongs to {}", owners));
    }
}

void check_imbalance(const Yaml& at, const UniformWorkload& uniform) {
    const auto differ = [](const std::vector<Ns>& times) { return times.size() > 1; };
    if (uniform.imbalance > 0 && (differ(uniform.forward) || differ(uniform.backward_input) ||
                                  differ(uniform.backward_weight) || differ(uniform.pair)))
        at.complain("'workload.imbalance' is for times that are means over the stages, but here each stage has its own",
                    "write one number for each of forward, backward_input and backward_weight, or remove the key");
}

void finish_workload(const Yaml& at, Config& config, KeyReading&) {
    const WorkloadConfig& workload = config.workload;
    ModelOptions& options = config.workload.options;
    const DataSource& source = data_source(workload.dataset);
    const BuiltInModel* model = model_of(config);
    if (model != nullptr && !at["image_size"].present())
        options.image_size = default_image_size(*model, source);
    if (source.labels == Labels::PerImage && options.classes < source.classes)
        at["classes"].complain(
            fmt::format("{} has {} classes, but the model has {}", source.name, source.classes, options.classes),
            fmt::format("write classes: {}", source.classes));
    check_path(at, model);
    check_heads(at, model, options);
    if (workload.model.empty())
        return;
    if (workload.transformer && workload.mtp_layers)
        config.workload.transformer->mtp = *workload.mtp_layers;
    if (workload.transformer && workload.transformer->mamba && workload.lora)
        at["lora"].complain(
            fmt::format("{} has layers with Mamba-2, which have no adapters", workload.transformer->name),
            "remove the key");
    check_encoder_of(at, config);
    if (workload.transformer)
        check_trained_layers(at, workload);
    check_tokens(at, workload, source);
    check_imbalance(at["imbalance"], workload.uniform);
    refuse_keys_of_others(at, config);
}

template <class T>
void spread(std::vector<T>& values, int stages) {
    if (values.size() == 1)
        values.resize(static_cast<std::size_t>(stages), values[0]);
}

}  // namespace

ConfigBlock workload_block() { return {"workload", kWorkloadKeys, finish_workload}; }

void spread_uniform(UniformWorkload& uniform, int stages) {
    for (std::vector<Ns>* times : {&uniform.forward, &uniform.backward_input, &uniform.backward_weight, &uniform.pair})
        spread(*times, stages);
    for (std::vector<Bytes>* sizes :
         {&uniform.activation, &uniform.activation_until_weight, &uniform.output, &uniform.weights})
        spread(*sizes, stages);
}

}  // namespace pw

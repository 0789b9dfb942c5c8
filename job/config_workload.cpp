#include "job/config_blocks.h"
#include "workloads/costs/profiled_model.h"

#include <algorithm>
#include <array>

namespace pw {
namespace {

constexpr const char* kModels = "models: resnet50, mlp, unet, gpt, uniform, or a file *.graph.txt, *.yaml or *.json";

// Empty where it is missing or unknown: which other keys are right, only a known model tells.
std::string read_model(const Yaml& at, const std::string& folder) {
    const std::vector<std::string_view> models{"resnet50", "mlp", "unet", "gpt", "uniform"};
    const std::string model = at.text();
    if (model.empty()) {
        if (!at.present() || at.is_text())
            at.complain("'workload.model' is missing", fmt::format("write workload: {{model: resnet50}}; {}", kModels));
    } else if (model_file(model) != ModelFile::None) {
        return absolute_path(folder, model);
    } else if (std::find(models.begin(), models.end(), model) == models.end()) {
        if (const std::optional<std::string_view> guess = nearest(model, models))
            at.complain(fmt::format("unknown model '{}'", model),
                        fmt::format("did you mean '{}'? {}", *guess, kModels));
        else
            at.complain(fmt::format("unknown model '{}'", model), kModels);
        return "";
    }
    return model;
}

// One value, or one per stage.
template <class T, class Read>
std::vector<T> read_values(const Yaml& at, T fallback, std::vector<StageClaim>& claims, Read read) {
    if (!at.is_list())
        return {read(at, fallback)};
    std::vector<T> values;
    for (const Yaml& item : at.items())
        values.push_back(read(item, fallback));
    if (values.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), "write one value, or a list with one value per stage");
    else
        claims.push_back(
            {at, static_cast<int>(values.size()), fmt::format("'{}' has {} values", at.path(), values.size())});
    return values;
}

Bytes read_size(const Yaml& at, Bytes fallback) {
    const Bytes size = at.bytes(fallback);
    if (size <= kLargestSize)
        return size;
    at.complain(fmt::format("'{}' is {}", at.path(), print_bytes(size)),
                fmt::format("it must be at most {}", exact_bytes(kLargestSize)));
    return fallback;
}

UniformWorkload read_uniform(const Yaml& workload, std::vector<StageClaim>& claims) {
    if (workload["stages"].present()) {
        const int stages = static_cast<int>(workload["stages"].integer(0, 1, kMostStages));
        claims.push_back({workload["stages"], stages, fmt::format("'workload.stages' is {}", stages)});
    }
    const auto times = [&](std::string_view key) {
        return read_values<Ns>(workload[key], 1000, claims,
                               [](const Yaml& at, Ns fallback) { return read_time(at, fallback); });
    };
    const auto sizes = [&](std::string_view key, Bytes fallback) {
        return read_values<Bytes>(workload[key], fallback, claims, read_size);
    };
    UniformWorkload uniform;
    uniform.forward = times("forward");
    uniform.backward_input = times("backward_input");
    uniform.backward_weight = times("backward_weight");
    uniform.activation = sizes("activation", 1'000'000);
    uniform.activation_until_weight = sizes("activation_until_weight", 0);
    uniform.output = sizes("output", 0);
    uniform.weights = sizes("weights", 0);
    const Yaml overlapped = workload["overlapped_forward_backward"];
    if (overlapped.present()) {
        std::vector<StageClaim> ignored;
        read_values<Ns>(overlapped, 0, ignored, [](const Yaml& at, Ns fallback) { return read_time(at, fallback); });
        not_in_this_version(overlapped, "'workload.overlapped_forward_backward'", "remove the key: a pair takes F + B");
    }
    return uniform;
}

constexpr std::array<std::string_view, 9> kUniformKeys{"stages",          "forward",    "backward_input",
                                                       "backward_weight", "activation", "activation_until_weight",
                                                       "output",          "weights",    "overlapped_forward_backward"};

void reject_uniform_keys(const Yaml& workload, const std::string& model) {
    for (const std::string_view key : kUniformKeys)
        if (workload[key].present())
            workload[key].complain(fmt::format("'workload.{}' belongs to model: uniform, not to {}", key, model),
                                   "remove the key; stages of a real model are set with pipeline.stages");
}

int default_image_size(const WorkloadConfig& workload) {
    if (workload.model == "unet")
        return 64;
    if (workload.model != "mlp")
        return 224;
    return workload.dataset == "cifar10" ? 32 : 28;
}

// Keys that only some models have.
struct ModelKey {
    std::string_view key, models;
};
constexpr ModelKey kModelKeys[] = {
    {"hidden", "mlp"},     {"base_channels", "unet"}, {"levels", "unet"}, {"sequence_length", "gpt"},
    {"vocabulary", "gpt"}, {"embedding", "gpt"},      {"blocks", "gpt"},  {"heads", "gpt"},
    {"dropout", "mlp gpt"}, {"augment", "resnet50 mlp unet"}, {"normalise", "resnet50 mlp unet"}};

void reject_keys_of_others(const Yaml& at, const std::string& model) {
    for (const ModelKey& known : kModelKeys)
        if (at[known.key].present() && fmt::format(" {} ", known.models).find(" " + model + " ") == std::string::npos)
            at[known.key].complain(fmt::format("'workload.{}' is not for model: {}", known.key, model),
                                   fmt::format("remove the key; it belongs to {}", known.models));
}

void read_shape(const Yaml& at, WorkloadConfig& workload) {
    const auto number = [&](std::string_view key, int fallback, int most) {
        return static_cast<int>(at[key].integer(fallback, 1, most));
    };
    workload.base_channels = number("base_channels", workload.base_channels, 4096);
    workload.levels = number("levels", workload.levels, 8);
    workload.sequence_length = number("sequence_length", workload.sequence_length, 65'536);
    workload.vocabulary = number("vocabulary", workload.vocabulary, 1'000'000);
    workload.embedding = number("embedding", workload.embedding, 65'536);
    workload.blocks = number("blocks", workload.blocks, 1024);
    workload.heads = number("heads", workload.heads, 1024);
    if (workload.model == "gpt" && workload.embedding % workload.heads != 0)
        at[at["heads"].present() ? "heads" : "embedding"].complain(
            fmt::format("an embedding of {} has no {} heads of equal width", workload.embedding, workload.heads),
            "choose heads that divide the embedding");
    workload.dropout = at["dropout"].number(0, 0, 0.999);
    if (at["hidden"].present()) {
        workload.hidden.clear();
        for (const Yaml& width : at["hidden"].items())
            workload.hidden.push_back(static_cast<int>(width.integer(1, 1, 1'000'000)));
    }
    if (!workload.model.empty())
        reject_keys_of_others(at, workload.model);
}

constexpr int kBytes = 256;  // tokens of a text

void check_tokens(const Yaml& at, const WorkloadConfig& workload) {
    const bool reads_tokens = workload.model == "gpt", is_text = workload.dataset == "text";
    if (reads_tokens && !is_text && workload.dataset != "synthetic")
        at["dataset"].complain(fmt::format("model: gpt reads tokens, and {} has images", workload.dataset),
                               "write dataset: text or dataset: synthetic");
    if (!reads_tokens && is_text)
        at["dataset"].complain(fmt::format("dataset: text has tokens, which model: {} does not read", workload.model),
                               "write model: gpt, or another dataset");
    if (reads_tokens && is_text && workload.vocabulary < kBytes)
        at["vocabulary"].complain(
            fmt::format("the tokens of a text are its bytes, of which the model knows {}", workload.vocabulary),
            fmt::format("write vocabulary: {} or more", kBytes));
}

void read_changes(const Yaml& augment, const Yaml& normalise, ImageChanges& changes) {
    augment.allow({"crop_padding", "flip"});
    changes.crop_padding = static_cast<int>(augment["crop_padding"].integer(0, 0, 4096));
    changes.flip = augment["flip"].boolean(false);
    normalise.allow({"mean", "std"});
    const auto values = [&](std::string_view key, double least) {
        std::vector<double> found;
        for (const Yaml& item : normalise[key].items())
            found.push_back(item.number(0, least, 1));
        return found;
    };
    if (!normalise.present())
        return;
    changes.mean = values("mean", 0);
    changes.deviation = values("std", 1e-6);
    if (changes.mean.empty() || changes.mean.size() != changes.deviation.size())
        normalise.complain("'workload.normalise' needs as many values of mean as of std",
                           "write one of each per channel, or remove the key");
}

template <class T>
void spread(std::vector<T>& values, int stages) {
    if (values.size() == 1)
        values.resize(static_cast<std::size_t>(stages), values[0]);
}

}  // namespace

WorkloadConfig read_workload(const Yaml& at, const std::string& folder, std::vector<StageClaim>& claims) {
    at.allow({"model",       "image_size",      "classes",
              "dataset",     "path",            "augment",
              "normalise",   "hidden",          "base_channels",
              "levels",      "sequence_length", "vocabulary",
              "embedding",   "blocks",          "heads",
              "dropout",     "stages",          "forward",
              "activation",  "backward_input",  "backward_weight",
              "output",      "weights",         "activation_until_weight",
              "overlapped_forward_backward"});
    WorkloadConfig workload;
    workload.model = read_model(at["model"], folder);
    workload.dataset = at["dataset"].choice("synthetic", {"synthetic", "cifar10", "mnist", "text"});
    workload.path = absolute_path(folder, at["path"].text());
    workload.image_size = static_cast<int>(at["image_size"].integer(default_image_size(workload), 1, 4096));
    workload.classes = static_cast<int>(at["classes"].integer(10, 1, 65'535));
    if ((workload.dataset == "cifar10" || workload.dataset == "mnist") && workload.classes < 10)
        at["classes"].complain(
            fmt::format("{} has 10 classes, the model tells {} apart", workload.dataset, workload.classes),
            "write classes: 10");
    read_shape(at, workload);
    if (!workload.model.empty())
        check_tokens(at, workload);
    read_changes(at["augment"], at["normalise"], workload.changes);
    if (workload.model == "uniform")
        workload.uniform = read_uniform(at, claims);
    else if (!workload.model.empty())
        reject_uniform_keys(at, workload.model);
    return workload;
}

void spread_uniform(const Yaml& workload, UniformWorkload& uniform, int stages) {
    for (std::vector<Ns>* times : {&uniform.forward, &uniform.backward_input, &uniform.backward_weight})
        spread(*times, stages);
    for (std::vector<Bytes>* sizes :
         {&uniform.activation, &uniform.activation_until_weight, &uniform.output, &uniform.weights})
        spread(*sizes, stages);
    const std::size_t both = std::min(uniform.activation.size(), uniform.activation_until_weight.size());
    for (std::size_t stage = 0; stage < both; ++stage) {
        const Bytes all = uniform.activation[stage], until_weight = uniform.activation_until_weight[stage];
        if (until_weight <= all)
            continue;
        const Yaml key =
            workload[workload["activation_until_weight"].present() ? "activation_until_weight" : "activation"];
        key.complain(fmt::format("stage {} keeps {} until W, more than its whole activation of {}", stage,
                                 exact_bytes(until_weight), exact_bytes(all)),
                     "activation_until_weight is a part of activation: lower it, or raise activation");
        return;
    }
}

}  // namespace pw

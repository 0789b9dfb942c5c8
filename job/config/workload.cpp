#include "job/config/blocks.h"
#include "job/config/other_names.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/data/data_sources.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <variant>

namespace pw {
namespace {

std::vector<std::string_view> model_names() {
    std::vector<std::string_view> names;
    for (const BuiltInModel* model : built_in_models())
        names.push_back(model->name);
    return names;
}

// Reads the model's name, which is empty where it is missing or unknown: which other keys are right, only a known model
// tells.
std::string read_model(const Yaml& at, const std::string& folder) {
    const std::vector<std::string_view> models = model_names();
    const std::string known =
        fmt::format("models: {}, or a file with the times of layers: *.yaml, *.json, *.csv or *.graph.txt",
                    fmt::join(models, ", "));
    const std::string model = at.text();
    if (model.empty()) {
        if (!at.present() || at.is_text())
            at.complain("'workload.model' is missing",
                        fmt::format("write workload: {{model: {}}}; {}", models.front(), known));
    } else if (model_file(model) != ModelFile::None) {
        return absolute_path(folder, model);
    } else if (find_model(model) == nullptr) {
        if (const std::optional<std::string_view> guess = nearest(model, models))
            at.complain(fmt::format("unknown model '{}'", model), fmt::format("did you mean '{}'? {}", *guess, known));
        else
            at.complain(fmt::format("unknown model '{}'", model), known);
        return "";
    }
    return model;
}

// Reads one value, or one per stage.
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

double read_imbalance(const Yaml& workload, const UniformWorkload& uniform) {
    const Yaml at = workload["imbalance"];
    const double imbalance = at.number(0, 0, 1);
    for (const std::vector<Ns>* times : {&uniform.forward, &uniform.backward_input, &uniform.backward_weight})
        if (imbalance > 0 && times->size() > 1) {
            at.complain("'workload.imbalance' is for times that are means over the stages, here is a time for each",
                        "write one number for each of forward, backward_input and backward_weight, or remove the key");
            break;
        }
    return imbalance;
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
    uniform.imbalance = read_imbalance(workload, uniform);
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

constexpr std::string_view kUniformKeys[]{
    "stages",    "forward", "activation", "backward_input",          "backward_weight",
    "imbalance", "output",  "weights",    "activation_until_weight", "overlapped_forward_backward"};

// Returns the name of the model without layers.
std::string_view uniform_model() {
    return (*std::ranges::find_if(built_in_models(), [](const BuiltInModel* row) { return row->build == nullptr; }))
        ->name;
}

void reject_uniform_keys(const Yaml& workload, const std::string& model) {
    for (const std::string_view key : kUniformKeys)
        if (workload[key].present())
            workload[key].complain(
                fmt::format("'workload.{}' belongs to model: {}, not to {}", key, uniform_model(), model),
                "remove the key; stages of a real model are set with pipeline.stages");
}

// Notes a mistake where the file has a key that belongs to other models. `model` is a name or a path.
void reject_key_of_others(const Yaml& at, std::string_view key, const std::string& model,
                          const std::function<bool(const BuiltInModel&)>& takes) {
    const BuiltInModel* own = find_model(model);
    if (!at[key].present() || (own != nullptr && takes(*own)))
        return;
    std::vector<std::string_view> owners;
    for (const BuiltInModel* other : built_in_models())
        if (takes(*other))
            owners.push_back(other->name);
    at[key].complain(fmt::format("'workload.{}' is not for model: {}", key, model),
                     fmt::format("remove the key; it belongs to {}", fmt::join(owners, " ")));
}

void reject_keys_of_others(const Yaml& at, const std::string& model) {
    for (const ModelKey& key : model_keys())
        reject_key_of_others(at, key.name, model,
                             [&](const BuiltInModel& other) { return takes_key(other, key.name); });
    for (const std::string_view key : {"augment", "normalise"})
        reject_key_of_others(at, key, model, reads_images);
}

void read_option(const Yaml& at, const ModelKey& key, int& value) {
    value =
        static_cast<int>(at.integer(value, static_cast<std::int64_t>(key.least), static_cast<std::int64_t>(key.most)));
}

void read_option(const Yaml& at, const ModelKey& key, double& value) { value = at.number(value, key.least, key.most); }

void read_option(const Yaml& at, const ModelKey& key, std::vector<int>& values) {
    if (!at.present())
        return;
    values.clear();
    for (const Yaml& item : at.items())
        read_option(item, key, values.emplace_back(static_cast<int>(key.least)));
}

void read_options(const Yaml& at, const std::string& model, ModelOptions& options) {
    for (const ModelKey& key : model_keys())
        std::visit([&](auto option) { read_option(at[key.name], key, options.*option); }, key.value);
    const BuiltInModel* own = find_model(model);
    if (own != nullptr && takes_key(*own, "heads") && options.embedding % options.heads != 0)
        at[at["heads"].present() ? "heads" : "embedding"].complain(
            fmt::format("an embedding of {} has no {} heads of equal width", options.embedding, options.heads),
            "choose heads that divide the embedding");
    if (!model.empty())
        reject_keys_of_others(at, model);
}

// These return the first row with tokens, of the models and of the data sets.
std::string_view model_of_tokens() {
    return (*std::ranges::find(built_in_models(), Labels::PerToken, &BuiltInModel::labels))->name;
}

std::string_view dataset_of_tokens() {
    return std::ranges::find(data_sources(), std::optional(Labels::PerToken), &DataSource::labels)->name;
}

void check_tokens(const Yaml& at, const WorkloadConfig& workload, const DataSource& source) {
    const BuiltInModel* model = find_model(workload.model);
    const bool reads_tokens = model != nullptr && model->labels == Labels::PerToken;
    const bool has_tokens = source.labels == Labels::PerToken;
    if (reads_tokens && source.labels && !has_tokens)
        at["dataset"].complain(
            fmt::format("model: {} reads tokens, and {} has images", model->name, source.name),
            fmt::format("write dataset: {} or dataset: {}", dataset_of_tokens(), data_sources().front().name));
    if (!reads_tokens && has_tokens)
        at["dataset"].complain(
            fmt::format("dataset: {} has tokens, which model: {} does not read", source.name, workload.model),
            fmt::format("write model: {}, or another dataset", model_of_tokens()));
    if (reads_tokens && has_tokens && workload.options.vocabulary < source.classes)
        at["vocabulary"].complain(fmt::format("the tokens of a {} are its bytes, of which the model knows {}",
                                              source.name, workload.options.vocabulary),
                                  fmt::format("write vocabulary: {} or more", source.classes));
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

std::vector<std::string_view> known_keys() {
    std::vector<std::string_view> keys{"model", "image_size", "classes", "dataset", "path", "augment", "normalise"};
    for (const ModelKey& key : model_keys())
        keys.push_back(key.name);
    keys.insert(keys.end(), std::begin(kUniformKeys), std::end(kUniformKeys));
    return keys;
}

std::vector<std::string_view> dataset_names() {
    std::vector<std::string_view> names;
    for (const DataSource& source : data_sources())
        names.push_back(source.name);
    return names;
}

template <class T>
void spread(std::vector<T>& values, int stages) {
    if (values.size() == 1)
        values.resize(static_cast<std::size_t>(stages), values[0]);
}

}  // namespace

WorkloadConfig read_workload(const Yaml& at, const std::string& folder, std::vector<StageClaim>& claims) {
    at.allow(known_keys(), kOtherNames);
    WorkloadConfig workload;
    ModelOptions& options = workload.options;
    workload.model = read_model(at["model"], folder);
    const DataSource& source = data_source(at["dataset"].choice(data_sources().front().name, dataset_names()));
    workload.dataset = source.name;
    workload.path = absolute_path(folder, at["path"].text());
    const BuiltInModel* model = find_model(workload.model);
    const int image_size = model == nullptr ? kUsualImageSize : default_image_size(*model, source);
    options.image_size = static_cast<int>(at["image_size"].integer(image_size, 1, 4096));
    options.classes = static_cast<int>(at["classes"].integer(options.classes, 1, 65'535));
    if (source.labels == Labels::PerImage && options.classes < source.classes)
        at["classes"].complain(
            fmt::format("{} has {} classes, the model tells {} apart", source.name, source.classes, options.classes),
            fmt::format("write classes: {}", source.classes));
    read_options(at, workload.model, options);
    if (!workload.model.empty())
        check_tokens(at, workload, source);
    read_changes(at["augment"], at["normalise"], workload.changes);
    if (model != nullptr && model->build == nullptr)
        workload.uniform = read_uniform(at, claims);
    else if (!workload.model.empty())
        reject_uniform_keys(at, workload.model);
    return workload;
}

void spread_uniform(UniformWorkload& uniform, int stages) {
    for (std::vector<Ns>* times : {&uniform.forward, &uniform.backward_input, &uniform.backward_weight})
        spread(*times, stages);
    for (std::vector<Bytes>* sizes :
         {&uniform.activation, &uniform.activation_until_weight, &uniform.output, &uniform.weights})
        spread(*sizes, stages);
}

}  // namespace pw

#include "workloads/costs/profiled_model.h"

#include "workloads/bounded.h"
#include "workloads/costs/profiled_layers.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace pw {
namespace {

constexpr const char* kPathHelp = "check the path; it starts at the config's folder";

// A format of files with layers. If several have one suffix, the first one whose key is in the text counts.
struct ModelForm {
    ModelFile file;
    std::string_view suffixes;  // separated by blanks
    std::string_view key;       // empty: any text
    ProfiledModel (*read)(std::shared_ptr<Source> source, const FileModelOptions& options);
};

// A reader that takes the number of samples only.
template <ProfiledModel (*read)(std::shared_ptr<Source> source, int samples)>
ProfiledModel by_samples(std::shared_ptr<Source> source, const FileModelOptions& options) {
    return read(std::move(source), options.samples);
}

constexpr ModelForm kForms[] = {
    {ModelFile::Graph, ".txt", "", by_samples<read_graph_txt>},
    {ModelFile::Layers, ".yaml .yml", "", by_samples<read_layer_yaml>},
    {ModelFile::JsonFile, ".json", "\"layer_compute_total_ms\"", by_samples<read_metis_json>},
    {ModelFile::JsonFile, ".json", "\"layers\"", by_samples<read_layer_yaml>},
    {ModelFile::JsonFile, ".json", "\"layertype_", read_galvatron_json},
    {ModelFile::Table, ".csv", "", by_samples<read_layer_csv>},
};

constexpr std::string_view kInstanceKey = "\"nodes\"";

// Returns null if a text has none of the formats of its suffix.
const ModelForm* form_of(ModelFile file, std::string_view text) {
    const auto row = std::find_if(std::begin(kForms), std::end(kForms), [&](const ModelForm& form) {
        return form.file == file && text.find(form.key) != std::string_view::npos;
    });
    return row == std::end(kForms) ? nullptr : row;
}

// Returns nothing if a model's name is not the name of a JSON file that is there.
std::optional<std::string> json_text(const std::string& model) {
    std::error_code error;
    if (model_file(model) != ModelFile::JsonFile || !std::filesystem::is_regular_file(model, error))
        return {};
    return read_text(model, kPathHelp);
}

// "folder/vgg16.graph.txt" is a file of the model vgg16.
std::string stem_of(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    return name.substr(0, name.find('.', 1));
}

}  // namespace

ModelFile model_file(const std::string& model) {
    const std::string extension = std::filesystem::path(model).extension().string();
    const auto row = std::find_if(std::begin(kForms), std::end(kForms), [&](const ModelForm& form) {
        return fmt::format(" {} ", form.suffixes).find(fmt::format(" {} ", extension)) != std::string::npos;
    });
    return row == std::end(kForms) || extension.empty() ? ModelFile::None : row->file;
}

bool is_instance(const std::string& model) {
    const std::optional<std::string> text = json_text(model);
    return text && form_of(ModelFile::JsonFile, *text) == nullptr && text->find(kInstanceKey) != std::string::npos;
}

bool may_be_galvatron(const std::string& model) {
    const std::optional<std::string> text = json_text(model);
    const ModelForm* form = text ? form_of(ModelFile::JsonFile, *text) : nullptr;
    return text ? form != nullptr && form->read == read_galvatron_json : model_file(model) == ModelFile::JsonFile;
}

ProfiledModel empty_profiled_model(const std::string& path) {
    ProfiledModel result;
    result.model.name = stem_of(path);
    result.profile.model = result.model.name;
    result.profile.backend = "file";
    return result;
}

void share_backward(PassTimes& times, Bytes weights) {
    times.backward_weight = weights > 0 ? times.backward / 2 : 0;
    times.backward_input = times.backward - times.backward_weight;
}

void add_profiled_layer(ProfiledModel& to, const std::string& name, const std::vector<int>& inputs,
                        const std::map<int, PassTimes>& times, const LayerBytes& bytes, int samples) {
    const int number =
        add_layer(to.model.layers, {.name = name, .kind = LayerKind::Profiled, .input = {}, .output = {}}, inputs);
    to.model.layers[number].has_weights = bytes.weights > 0 || std::ranges::any_of(times, [](const auto& of_size) {
                                              return of_size.second.backward_weight > 0;
                                          });
    LayerProfile layer{.name = name, .bytes = {{samples, bytes}}};
    for (const auto& [size, passes] : times) {
        LayerTimes& layer_times = layer.times[size];
        layer_times.forward = {passes.forward, passes.forward_spread};
        layer_times.backward = {passes.backward, passes.backward_spread};
        const double relative = passes.backward > 0
                                    ? static_cast<double>(passes.backward_spread) / static_cast<double>(passes.backward)
                                    : 0;
        const auto part = [&](Ns time) -> Measured { return {time, bounded(relative * static_cast<double>(time))}; };
        layer_times.backward_input = part(passes.backward_input);
        layer_times.backward_weight = part(passes.backward_weight);
    }
    to.profile.layers.push_back(std::move(layer));
    to.profile.data[samples] = {};
    to.profile.data_bytes[samples] = 0;
}

ProfiledModel read_profiled_model(const std::string& path, const FileModelOptions& options) {
    auto source = std::make_shared<Source>(path, read_text(path, kPathHelp));
    const ModelForm* form = form_of(model_file(path), source->text());
    if (form == nullptr)
        fail(
            "'{}' has none of the forms of a *.json with layers\n  help: write {{\"samples\": 8, \"layers\": "
            "[{{\"name\": \"conv1\", \"forward\": \"3 ms\", \"backward\": \"6 ms\"}}, ...]}}, or name a profile of "
            "Metis (execution_time.layer_compute_total_ms) or Galvatron (layertype_0_bsz1_seq4096)",
            path);
    return form->read(std::move(source), options);
}

}  // namespace pw

#include "workloads/costs/profiled_model.h"

#include "workloads/bounded.h"
#include "workloads/costs/profiled_layers.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
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
    ProfiledModel (*read)(std::shared_ptr<Source> source, int samples);
};
constexpr ModelForm kForms[] = {
    {ModelFile::Graph, ".txt", "", read_graph_txt},
    {ModelFile::Layers, ".yaml .yml", "", read_layer_yaml},
    {ModelFile::JsonFile, ".json", "\"layer_compute_total_ms\"", read_metis_json},
    {ModelFile::JsonFile, ".json", "\"layers\"", read_layer_yaml},
    {ModelFile::Table, ".csv", "", read_layer_csv},
};

constexpr std::string_view kInstanceKey = "\"nodes\"";

// Returns null if a text has none of the formats of its suffix.
const ModelForm* form_of(ModelFile file, std::string_view text) {
    const auto row = std::find_if(std::begin(kForms), std::end(kForms), [&](const ModelForm& form) {
        return form.file == file && text.find(form.key) != std::string_view::npos;
    });
    return row == std::end(kForms) ? nullptr : row;
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
    std::error_code error;
    if (model_file(model) != ModelFile::JsonFile || !std::filesystem::is_regular_file(model, error))
        return false;
    const std::string text = read_text(model, kPathHelp);
    return form_of(ModelFile::JsonFile, text) == nullptr && text.find(kInstanceKey) != std::string::npos;
}

bool is_galvatron(std::string_view text) { return text.find("\"layertype_") != text.npos; }

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
    add_layer(to.model.layers, {.name = name, .kind = LayerKind::Profiled, .input = {}, .output = {}}, inputs);
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

ProfiledModel read_profiled_model(const std::string& path, int samples) {
    auto source = std::make_shared<Source>(path, read_text(path, kPathHelp));
    const ModelForm* form = form_of(model_file(path), source->text());
    if (form == nullptr && is_galvatron(source->text()))
        fail(
            "'{}' is a profile of Galvatron, which is not read\n  help: write a *.csv with a row for each layer, as "
            "in: "
            "name, forward (ms), weights (MiB); layertype_0_bsz1_seq4096 is the forward of one layer for one sample in "
            "ms, layertype_other the forward of embedding and head together, parameter_size the fp32 weights of a "
            "layer in MiB",
            path);
    if (form == nullptr)
        fail(
            "'{}' has none of the forms of a *.json with layers\n  help: write {{\"samples\": 8, \"layers\": "
            "[{{\"name\": \"conv1\", \"forward\": \"3 ms\", \"backward\": \"6 ms\"}}, ...]}}, or name a profile of "
            "Metis "
            "(execution_time.layer_compute_total_ms)",
            path);
    return form->read(std::move(source), samples);
}

}  // namespace pw

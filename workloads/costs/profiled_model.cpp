#include "workloads/costs/profiled_model.h"

#include "workloads/costs/profiled_layers.h"
#include "workloads/text/files.h"

#include <filesystem>

namespace pw {
namespace {

constexpr const char* kHelp = "check the path; it starts at the config's folder";

// "folder/vgg16.graph.txt" is of the model vgg16.
std::string stem_of(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    return name.substr(0, name.find('.', 1));
}

}  // namespace

ModelFile model_file(const std::string& model) {
    const std::string extension = std::filesystem::path(model).extension().string();
    if (extension == ".txt")
        return ModelFile::Graph;
    if (extension == ".yaml" || extension == ".yml")
        return ModelFile::Layers;
    return extension == ".json" ? ModelFile::Instance : ModelFile::None;
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
    add_layer(to.model.layers, {.name = name, .kind = LayerKind::Profiled, .input = {}, .output = {}}, inputs);
    LayerProfile layer{.name = name, .bytes = {{samples, bytes}}};
    for (const auto& [size, passes] : times) {
        LayerTimes& layer_times = layer.times[size];
        layer_times.forward.median = passes.forward;
        layer_times.backward.median = passes.backward;
        layer_times.backward_input.median = passes.backward_input;
        layer_times.backward_weight.median = passes.backward_weight;
    }
    to.profile.layers.push_back(std::move(layer));
    to.profile.data[samples] = {};
    to.profile.data_bytes[samples] = 0;
}

ProfiledModel read_profiled_model(const std::string& path, int samples) {
    if (model_file(path) == ModelFile::Layers)
        return read_layer_yaml(path, samples);
    return read_graph_txt(std::make_shared<Source>(path, read_text(path, kHelp)), samples);
}

}  // namespace pw

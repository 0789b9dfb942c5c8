#include "exec/training/parameter_files.h"

#include "exec/training/npy.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/ranges.h>

#include <filesystem>

namespace pw {

namespace {

std::string file_of(const std::string& folder, const std::string& parameter) {
    return (std::filesystem::path(folder) / (parameter + ".npy")).string();
}

std::string print(const std::vector<int>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

void check(const Setup& setup, const ParameterShape& parameter) {
    const std::string file = file_of(setup.training.initial, parameter.name);
    constexpr const char* kHelp = "name a folder that `pipewright run --save` wrote for this model";
    if (!std::filesystem::exists(file))
        setup.fail_at("training.initial", fmt::format("there is no {}", file), kHelp);
    if (const std::vector<int> shape = read_npy_shape(file); shape != parameter.shape)
        setup.fail_at("training.initial",
                      fmt::format("{} has the shape {}, expected {}", file, print(shape), print(parameter.shape)),
                      kHelp);
}

}  // namespace

void write_parameters(const std::string& folder, const std::vector<NamedTensor>& parameters) {
    NewFolder fresh(folder);
    fresh.fill([&](const std::string& draft) {
        for (const NamedTensor& tensor : parameters)
            write_npy(file_of(draft, tensor.name), tensor.shape, tensor.values);
    });
    fresh.finish();
}

std::vector<std::vector<float>> read_parameters(const std::string& folder, const LayerGraph& graph, int layer) {
    if (const std::string& owner = graph[layer].tied_to; !owner.empty())
        return read_parameters(folder, graph, find_layer(graph, owner));
    std::vector<std::vector<float>> all;
    for (const ParameterShape& parameter : parameters_of(graph[layer])) {
        const std::string file = file_of(folder, parameter.name);
        all.push_back(read_npy(file));
        if (const auto count = static_cast<std::int64_t>(all.back().size()); count != parameter.elements())
            fail("{} has {} values, expected {}", file, count, parameter.elements());
    }
    return all;
}

void check_initial(const Setup& setup, const Model& model) {
    if (setup.training.initial.empty())
        return;
    if (is_half_moved(setup.training.initial))
        setup.fail_at("training.initial",
                      fmt::format("the last run that saved into {} was interrupted: its files may be of two runs",
                                  setup.training.initial),
                      "save into it again, or name another folder");
    for (std::size_t layer = 0; layer < boost::num_vertices(model.layers); ++layer)
        for (const ParameterShape& parameter : parameters_of(model.layers[layer]))
            check(setup, parameter);
}

}  // namespace pw

#include "report/layouts.h"

#include "search/plan_choice.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/models/blocks.h"
#include "workloads/models/models.h"
#include "workloads/stages/layout_notation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {

namespace {

// Returns whether PyTorch's model has the layer as a module of its own. In a file, the layer of the operations between
// the modules of a block has the name of the block, and a number where there are several of them.
bool is_module(const LayerGraph& graph, int number) {
    const Layer& layer = graph[static_cast<std::size_t>(number)];
    if (facts_of(layer.kind).role != LayerRole::Module)
        return false;
    const auto is_layer = [&](const std::string& name) { return find_layer(graph, name) >= 0; };
    const std::size_t dot = layer.name.rfind('.');
    const bool repeats =
        dot != std::string::npos && is_number(layer.name.substr(dot + 1)) && is_layer(layer.name.substr(0, dot));
    if (repeats)
        return false;
    for (std::size_t other = 0; other < num_vertices(graph); ++other)
        if (graph[other].name.starts_with(layer.name + "."))
            return false;
    return true;
}

}  // namespace

std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split) {
    const ModelFile file = model_file(workload.model);
    const bool has_parts =
        is_decoder(workload.model) || workload.transformer || (file != ModelFile::Graph && file != ModelFile::None);
    return starts_of_ranges(split) && has_parts ? layout_of(graph, split, is_decoder(workload.model)) : "";
}

SplitSpec pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split) {
    const auto starts = starts_of_ranges(split);
    if (!starts || starts->empty() || model_file(workload.model) == ModelFile::Graph)  // whose layers are numbers
        return {};
    const std::vector<int> blocks = starts_of_blocks(graph);
    const BuiltInModel* built_in = find_model(workload.model);
    SplitSpec spec;
    for (const int cut : *starts) {
        const std::string& name = graph[static_cast<std::size_t>(cut)].name;
        const bool is_block = std::binary_search(blocks.begin(), blocks.end(), cut);
        if (!is_block)
            spec.inside.push_back(name);
        if (!is_block && !is_module(graph, cut)) {
            spec.no_modules.push_back(name);
            continue;
        }
        const std::string module = is_block ? block_of(name) : name;
        spec.text +=
            fmt::format("{}\"{}\": SplitPoint.BEGINNING", spec.text.empty() ? "" : ", ",
                        built_in == nullptr || built_in->module_of == nullptr ? module : built_in->module_of(module));
    }
    spec.text = spec.no_modules.empty() ? "{" + spec.text + "}" : "";
    return spec;
}

}  // namespace pw

// Writes a split of a model in the words of other frameworks.
#include "cli/search.h"
#include "workloads/costs/profiled_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace pw {

namespace {

constexpr std::string_view kTable = "wte";  // of a gpt
constexpr std::string_view kBlock = "h.";   // of a gpt: "h.3.attn.c_attn"

std::string run_of(char letter, int length) {
    return length < 3 ? std::string(static_cast<std::size_t>(length), letter) : fmt::format("{}*{}", letter, length);
}

// Of a gpt a block is one t; what has no letter of its own (positions, the last norm) goes with its neighbours.
std::string letters_of_gpt(const LayerGraph& graph, const std::vector<int>& layers,
                           std::map<std::string, int>& stages_of, int stage) {
    std::string letters;
    for (const int layer : layers) {
        const std::string& name = graph[static_cast<std::size_t>(layer)].name;
        if (name == kTable)
            letters += 'E';
        if (is_loss(graph[static_cast<std::size_t>(layer)].kind))
            letters += 'L';
        if (!name.starts_with(kBlock))
            continue;
        const std::string block = name.substr(0, name.find('.', kBlock.size()));
        const auto [found, is_new] = stages_of.emplace(block, stage);
        if (found->second != stage)
            return {};  // the block is cut
        letters += is_new ? "t" : "";
    }
    return letters;
}

std::string letters_of_graph(const LayerGraph& graph, const std::vector<int>& layers) {
    std::string letters;
    for (const int layer : layers) {
        const Layer& own = graph[static_cast<std::size_t>(layer)];
        letters += is_loss(own.kind) ? 'L' : own.name.starts_with("embed") ? 'E' : 't';
    }
    return letters;
}

std::string packed(const std::string& letters) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < letters.size(); begin = end) {
        end = std::min(letters.size(), letters.find_first_not_of(letters[begin], begin));
        text += run_of(letters[begin], static_cast<int>(end - begin));
    }
    return text;
}

bool has_embedding(const LayerGraph& graph) {
    for (std::size_t layer = 0; layer < num_vertices(graph); ++layer)
        if (graph[layer].name.starts_with("embed"))
            return true;
    return false;
}

}  // namespace

std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split) {
    const ModelFile file = model_file(workload.model);
    const bool gpt = file == ModelFile::None && find_layer(graph, kTable) >= 0;
    if (!starts_of_ranges(split) ||
        (!gpt && (file == ModelFile::Graph || file == ModelFile::None || !has_embedding(graph))))
        return {};
    std::string layout;
    std::map<std::string, int> stages_of;  // by block
    for (int stage = 0; stage < split.stages(); ++stage) {
        const std::vector<int>& layers = split.layers[static_cast<std::size_t>(stage)];
        const std::string letters =
            gpt ? letters_of_gpt(graph, layers, stages_of, stage) : letters_of_graph(graph, layers);
        if (letters.empty())
            return {};
        layout += (stage == 0 ? "" : "|") + packed(letters);
    }
    return layout;
}

std::string pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split) {
    const auto starts = starts_of_ranges(split);
    if (!starts || model_file(workload.model) == ModelFile::Graph)  // whose layers are numbers
        return {};
    std::string spec;
    for (const int cut : *starts) {
        const Layer& layer = graph[static_cast<std::size_t>(cut)];
        if (facts_of(layer.kind).role != LayerRole::Module)
            return {};
        spec += fmt::format("{}\"{}\": SplitPoint.BEGINNING", spec.empty() ? "" : ", ", layer.name);
    }
    return spec.empty() ? "" : "{" + spec + "}";
}

}  // namespace pw

#include "report/layouts.h"

#include "search/plans/plan_choice.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/models/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace {

// Names that models give their layers outside the blocks, whole or as a part: "lm_head", "model.embed_tokens". Megatron
// counts the last norm and the output layer as part of L.
struct NamedPart {
    std::string_view name;
    bool is_prefix;
    LayerPart part;
};
constexpr NamedPart kNamedParts[] = {{"embed_out", false, LayerPart::Head},
                                     {"embed", true, LayerPart::Embedding},
                                     {"wte", false, LayerPart::Embedding},
                                     {"wpe", false, LayerPart::Embedding},
                                     {"tok_embed", true, LayerPart::Embedding},
                                     {"word_embed", true, LayerPart::Embedding},
                                     {"position_embed", true, LayerPart::Embedding},
                                     {"pos_embed", true, LayerPart::Embedding},
                                     {"token_embed", true, LayerPart::Embedding},
                                     {"norm", false, LayerPart::Head},
                                     {"norm_f", false, LayerPart::Head},
                                     {"final_norm", false, LayerPart::Head},
                                     {"final_layernorm", false, LayerPart::Head},
                                     {"final_layer_norm", false, LayerPart::Head},
                                     {"ln_f", false, LayerPart::Head},
                                     {"head", false, LayerPart::Head},
                                     {"lm_head", false, LayerPart::Head},
                                     {"output", false, LayerPart::Head},
                                     {"output_layer", false, LayerPart::Head},
                                     {"unembed", true, LayerPart::Head},
                                     {"logits", false, LayerPart::Head},
                                     {"loss", false, LayerPart::Loss},
                                     {"cross_entropy", false, LayerPart::Loss}};

std::string run_of(char letter, int length) {
    return length < 3 ? std::string(static_cast<std::size_t>(length), letter) : fmt::format("{}*{}", letter, length);
}

std::vector<std::string> components_of(const std::string& name) {
    std::vector<std::string> components;
    for (std::size_t begin = 0; begin <= name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        components.push_back(name.substr(begin, end - begin));
        begin = end + 1;
    }
    return components;
}

bool is_number(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns the name of the block that a layer is of, "h.3" of "h.3.attn.c_attn"; other layers are blocks of their own.
std::string block_of(const std::string& name) {
    std::string block;
    for (const std::string& component : components_of(name)) {
        block += (block.empty() ? "" : ".") + component;
        if (is_number(component))
            return block;
    }
    return name;
}

std::optional<LayerPart> part_by_name(const std::string& name) {
    const std::vector<std::string> components = components_of(name);
    if (std::any_of(components.begin(), components.end(), is_number))
        return std::nullopt;
    for (const NamedPart& row : kNamedParts)
        for (const std::string& component : components)
            if (row.is_prefix ? component.starts_with(row.name) : component == row.name)
                return row.part;
    return std::nullopt;
}

char letter_of(LayerPart part) { return part == LayerPart::Embedding ? 'E' : part == LayerPart::Block ? 't' : 'L'; }

// Returns a letter per layer; a blank has none of its own. What only its name says is an end of the model is one where
// all layers outside it are. Empty where the letters are not in the order of Megatron: embedding, blocks, loss.
std::string letters_of_layers(const LayerGraph& graph, bool decoder) {
    const auto count = num_vertices(graph);
    std::string letters(count, ' '), by_name(count, ' ');
    for (std::size_t i = 0; i < count; ++i) {
        const Layer& layer = graph[i];
        if (layer.part)
            letters[i] = letter_of(*layer.part);
        else if (is_loss(layer.kind))
            letters[i] = 'L';
        else if (const auto part = part_by_name(layer.name))
            by_name[i] = letter_of(*part);
        else if (!decoder || is_number(components_of(block_of(layer.name)).back()))
            letters[i] = 't';
    }
    const auto first = letters.find_first_of("tL"), last = letters.find_last_of("Et");
    for (std::size_t i = 0; i < count; ++i)
        if (by_name[i] == 'E')
            letters[i] = first == std::string::npos || i < first ? 'E' : 't';
        else if (by_name[i] == 'L')
            letters[i] = last == std::string::npos || i > last ? 'L' : 't';
    const auto in_order = [](char a, char b) {
        return std::string_view("EtL").find(a) < std::string_view("EtL").find(b);
    };
    std::string own = letters;
    std::erase(own, ' ');
    return std::is_sorted(own.begin(), own.end(), in_order) ? letters : "";
}

std::string packed(const std::string& letters) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < letters.size(); begin = end) {
        end = std::min(letters.size(), letters.find_first_not_of(letters[begin], begin));
        text += run_of(letters[begin], static_cast<int>(end - begin));
    }
    return text;
}

}  // namespace

std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split) {
    const ModelFile file = model_file(workload.model);
    const BuiltInModel* built_in = find_model(workload.model);
    const bool decoder = built_in != nullptr && built_in->labels == Labels::PerToken;
    const bool has_parts = decoder || workload.transformer || (file != ModelFile::Graph && file != ModelFile::None);
    if (!starts_of_ranges(split) || !has_parts)
        return {};
    const std::string letters = letters_of_layers(graph, decoder);
    const std::size_t embedding = letters.find('E'), loss = letters.rfind('L');
    if (embedding == std::string::npos)
        return {};
    std::string layout;
    std::map<std::string, int> stage_of;  // by block
    for (int stage = 0; stage < split.stages(); ++stage) {
        std::string own;
        for (const int layer : split.layers[static_cast<std::size_t>(stage)]) {
            const auto i = static_cast<std::size_t>(layer);
            if (i == embedding || i == loss)
                own += letters[i];
            if (letters[i] != 't')
                continue;
            const auto [found, is_new] = stage_of.emplace(block_of(graph[i].name), stage);
            if (found->second != stage)
                return {};  // the block is cut
            own += is_new ? "t" : "";
        }
        if (loss == std::string::npos && stage + 1 == split.stages())
            own += 'L';
        if (own.empty())
            return {};
        layout += (stage == 0 ? "" : "|") + packed(own);
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

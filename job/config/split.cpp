// The key `pipeline.split`.
#include "job/config/blocks.h"
#include "workloads/models/blocks.h"
#include "workloads/stages/layout_notation.h"

#include <algorithm>

namespace pw {
namespace {

using Split = PipelineConfig::Split;

std::string how_to_split() {
    return fmt::format(
        "write {}, a list with the first layer of each later stage, {{stages: [[layers], ...]}}, a list with the "
        "number of blocks of each stage, or a layout such as \"Et*2|tt|t*2L\"",
        fmt::join(names_of<Split>(), ", "));
}

constexpr std::int64_t kMostBlocks = 1'000'000;  // of a stage

void read_lists(const Yaml& split, PipelineConfig& pipeline, std::vector<StageClaim>& claims) {
    split.allow({"stages"});
    const Yaml stages = split["stages"];
    pipeline.split = Split::Lists;
    if (!stages.is_list() || stages.items().empty()) {
        split.complain("'pipeline.split' lists no stages", how_to_split());
        return;
    }
    for (const Yaml& stage : stages.items()) {
        std::vector<std::string>& names = pipeline.lists.emplace_back();
        for (const Yaml& layer : stage.items())
            names.push_back(read_layer_name(layer));
    }
    claims.push_back({stages, static_cast<int>(pipeline.lists.size()),
                      fmt::format("'{}' lists {} stages", stages.path(), pipeline.lists.size())});
}

void claim_stages(const Yaml& split, std::size_t stages, KeyReading& reading) {
    reading.claims.push_back({split, static_cast<int>(stages),
                              fmt::format("'pipeline.split' makes {} stage{}", stages, stages == 1 ? "" : "s")});
}

// Numbers in a list count blocks, unless the model is a file, whose layers may have numbers as names.
bool are_counts(const std::vector<Yaml>& items, const Config& config) {
    const bool has_names = is_transformer(config) || find_model(config.workload.model) != nullptr;
    return has_names && !items.empty() && std::all_of(items.begin(), items.end(), [](const Yaml& item) {
               return item.is_text() && is_number(item.text());
           });
}

void read_list(const Yaml& split, Config& config, KeyReading& reading) {
    PipelineConfig& pipeline = config.pipeline;
    const std::vector<Yaml> items = split.items();
    if (are_counts(items, config)) {
        pipeline.split = Split::Counts;
        for (const Yaml& item : items)
            pipeline.blocks.push_back(static_cast<int>(item.integer(0, 0, kMostBlocks)));
        return claim_stages(split, items.size(), reading);
    }
    pipeline.split = Split::Cuts;
    for (const Yaml& cut : items)
        pipeline.cuts.push_back(read_layer_name(cut));
    claim_stages(split, pipeline.cuts.size() + 1, reading);
}

void read_layout(const Yaml& split, PipelineConfig& pipeline, KeyReading& reading) {
    pipeline.layout = split.text();
    try {
        claim_stages(split, stages_of_layout(pipeline.layout).size(), reading);
        pipeline.split = Split::Layout;
    } catch (const Error& error) {
        split.complain(error.fact(), error.help().empty() ? how_to_split() : error.help());
    }
}

}  // namespace

void read_split(const KeyDomain&, const Yaml& split, Config& config, KeyReading& reading) {
    PipelineConfig& pipeline = config.pipeline;
    if (split.is_map())
        return read_lists(split, pipeline, reading.claims);
    if (split.is_list())
        return read_list(split, config, reading);
    const std::string text = split.text(name_of(Split::Auto));
    const std::optional<Split> chosen = parse_choice<Split>(text);
    pipeline.split = chosen.value_or(Split::Auto);
    if (!chosen && is_layout(text))
        read_layout(split, pipeline, reading);
    else if (!chosen)
        split.complain(fmt::format("'pipeline.split' is '{}'", text), how_to_split());
}

std::string print_split(const Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    const auto names = [](const std::vector<std::string>& layers) { return print_list(layers, quoted); };
    switch (pipeline.split) {
        case Split::Auto:
            if (is_transformer(config) && !config.places.contains("pipeline.split"))
                return "";  // the usual split of a transformer is not by times
            break;
        case Split::Even:
            break;
        case Split::Cuts:
            return names(pipeline.cuts);
        case Split::Lists:
            return fmt::format("{{stages: {}}}", print_list(pipeline.lists, names));
        case Split::Layout:
            return quoted(pipeline.layout);
        case Split::Counts:
            return print_items(pipeline.blocks);
    }
    return std::string(name_of(pipeline.split));
}

}  // namespace pw

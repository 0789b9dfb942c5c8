#include "job/config/blocks.h"
#include "job/config/other_names.h"

#include <algorithm>
#include <numeric>

namespace pw {
namespace {

using Split = PipelineConfig::Split;

std::string how_to_split() {
    return fmt::format("write {}, a list with the first layer of each later stage, or {{stages: [[layers], ...]}}",
                       fmt::join(names_of<Split>(), ", "));
}

constexpr int kMostReplicas = 4096;

std::string read_name(const Yaml& at) {
    const std::string name = at.text();
    if (name.empty() && at.is_text())
        at.complain(fmt::format("'{}' is an empty name", at.path()), "write the name of a layer, such as layer3.0");
    return name;
}

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
            names.push_back(read_name(layer));
        if (stage.is_list() && names.empty())
            stage.complain(fmt::format("stage {} gets no layer", pipeline.lists.size() - 1),
                           "give it a layer, or remove its list");
    }
    claims.push_back({stages, static_cast<int>(pipeline.lists.size()),
                      fmt::format("'{}' lists {} stages", stages.path(), pipeline.lists.size())});
}

void read_split(const Yaml& split, PipelineConfig& pipeline, std::vector<StageClaim>& claims) {
    if (split.is_map()) {
        read_lists(split, pipeline, claims);
    } else if (split.is_list()) {
        pipeline.split = Split::Cuts;
        for (const Yaml& cut : split.items())
            pipeline.cuts.push_back(read_name(cut));
        const std::size_t stages = pipeline.cuts.size() + 1;
        claims.push_back({split, static_cast<int>(stages),
                          fmt::format("'pipeline.split' makes {} stage{}", stages, stages == 1 ? "" : "s")});
    } else {
        const std::string text = split.text(name_of(Split::Auto));
        const std::optional<Split> chosen = parse_choice<Split>(text);
        pipeline.split = chosen.value_or(Split::Auto);
        if (!chosen)
            split.complain(fmt::format("'pipeline.split' is '{}'", text), how_to_split());
    }
}

void read_replicas(const Yaml& replicas, PipelineConfig& pipeline, std::vector<StageClaim>& claims) {
    if (replicas.is_text())
        return replicas.complain(
            fmt::format("'pipeline.replicas' is '{}', and has a number for each stage", replicas.text()),
            "write the devices of every stage, such as [2, 2] for two stages of two devices each");
    for (const Yaml& item : replicas.items())
        pipeline.replicas.push_back(static_cast<int>(item.integer(1, 1, kMostReplicas)));
    if (replicas.is_list())
        claims.push_back({replicas, static_cast<int>(pipeline.replicas.size()),
                          fmt::format("'pipeline.replicas' has {} entries", pipeline.replicas.size())});
}

// Samples of a mini-batch: all micro-batches are full, or the last one is smaller.
void read_mini_batch(const Yaml& at, PipelineConfig& pipeline) {
    const std::int64_t size = pipeline.micro_batch_size;
    pipeline.mini_batch = pipeline.micro_batches * size;
    if (!at["mini_batch"].present())
        return;
    const std::int64_t asked = at["mini_batch"].integer(pipeline.mini_batch, 1, kMostBatches * kMostBatches);
    const std::int64_t needed = (asked + size - 1) / size;
    pipeline.mini_batch = asked;
    if (!at["micro_batches"].present() && needed <= kMostBatches)
        pipeline.micro_batches = static_cast<int>(needed);
    else if (needed != pipeline.micro_batches)
        at["mini_batch"].complain(
            fmt::format("{} samples are {} micro-batches of {}, not {}", asked, needed, size, pipeline.micro_batches),
            fmt::format("write micro_batches: {}, or remove one of the keys", needed));
}

}  // namespace

bool is_replicated(const PipelineConfig& pipeline) {
    return std::any_of(pipeline.replicas.begin(), pipeline.replicas.end(), [](int replicas) { return replicas > 1; });
}

PipelineConfig read_pipeline(const Yaml& at, const std::string& folder, std::vector<StageClaim>& claims) {
    at.allow({"schedule", "stages", "split", "micro_batches", "micro_batch_size", "replicas", "weights", "recompute",
              "drain", "group", "waves", "slices", "mini_batch", "prediction", "rules", "micro_batch_lengths"},
             kOtherNames);
    PipelineConfig pipeline;
    pipeline.schedule = at["schedule"].text("1f1b");
    if (pipeline.schedule.empty())
        at["schedule"].complain("'pipeline.schedule' is empty", "write the name of a schedule, such as 1f1b");
    const Yaml stages = at["stages"];
    if (stages.present()) {
        const int count = static_cast<int>(stages.integer(0, 1, kMostStages));
        // what the user says goes before what follows from other keys
        claims.insert(claims.begin(), {stages, count, fmt::format("'pipeline.stages' is {}", count)});
    }
    read_split(at["split"], pipeline, claims);
    pipeline.micro_batches = static_cast<int>(at["micro_batches"].integer(1, 1, kMostBatches));
    pipeline.micro_batch_size = static_cast<int>(at["micro_batch_size"].integer(1, 1, kMostBatches));
    read_mini_batch(at, pipeline);
    if (at["micro_batch_lengths"].present())
        pipeline.micro_batch_lengths = read_lengths(at["micro_batch_lengths"], folder);
    read_replicas(at["replicas"], pipeline, claims);
    pipeline.weights = at["weights"].choice<WeightPolicy>();
    pipeline.prediction = at["prediction"].choice(pipeline.prediction);
    pipeline.rules = at["rules"].choice(pipeline.rules);
    pipeline.drain = at["drain"].choice(pipeline.drain);
    if (at["group"].present())
        pipeline.group = static_cast<int>(at["group"].integer(1, 1, kMostBatches));
    for (const std::string_view key : {"waves", "slices"})
        if (at[key].present()) {
            at[key].integer(1, 1, kMostBatches);
            not_in_this_version(at[key], fmt::format("'pipeline.{}'", key), "remove the key");
        }
    return pipeline;
}

std::vector<int> read_recompute(const Yaml& recompute, int stages) {
    std::vector<int> found;
    if (recompute.is_list()) {
        for (const Yaml& item : recompute.items())
            found.push_back(static_cast<int>(item.integer(0, 0, stages - 1)));
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
    } else if (recompute.choice<PipelineConfig::Recompute>() == PipelineConfig::Recompute::All) {
        found.resize(static_cast<std::size_t>(stages));
        std::iota(found.begin(), found.end(), 0);
    }
    return found;
}

}  // namespace pw

#include "job/rules.h"

#include <filesystem>

namespace pw {
namespace {

constexpr const char* kDropTheRules = "or remove pipeline.rules: mindspore";
constexpr const char* kStages = "pipeline.split.stages";

[[noreturn]] void break_rule(const Setup& setup, const std::string& key, const std::string& fact,
                             const std::string& help) {
    setup.fail_at(key, fact, fmt::format("{}, {}", help, kDropTheRules));
}

// Returns the stage of each layer of a split that is given as lists; -1 for none. Names that are no layer are checked
// elsewhere.
std::vector<int> listed_stages(const Setup& setup, const LayerGraph& layers) {
    std::vector<int> stage_of(boost::num_vertices(layers), -1);
    const auto& lists = setup.pipeline.lists;
    for (std::size_t stage = 0; stage < lists.size(); ++stage)
        for (const std::string& name : lists[stage])
            if (const int layer = find_layer(layers, name); layer >= 0)
                stage_of[static_cast<std::size_t>(layer)] = static_cast<int>(stage);
    return stage_of;
}

void check_parameters_have_stages(const Setup& setup, const LayerGraph& layers, const std::vector<int>& stage_of) {
    for (std::size_t layer = 0; layer < stage_of.size(); ++layer)
        if (stage_of[layer] < 0 && (layers[layer].parameters > 0 || !layers[layer].tied_to.empty()))
            break_rule(setup, kStages, fmt::format("layer '{}' has parameters and no stage", layers[layer].name),
                       "list it in a stage");
}

void check_no_stage_reads_a_later_one(const Setup& setup, const LayerGraph& layers, const std::vector<int>& stage_of) {
    for (int layer = 0; layer < static_cast<int>(stage_of.size()); ++layer)
        for (const int input : inputs_of_layer(layers, layer))
            if (stage_of[layer] >= 0 && stage_of[input] > stage_of[layer])
                break_rule(setup, kStages,
                           fmt::format("stages do not ascend in execution order: layer '{}' of stage {} reads '{}' of "
                                       "stage {}",
                                       layers[layer].name, stage_of[layer], layers[input].name, stage_of[input]),
                           fmt::format("move '{}' to stage {} or later", layers[layer].name, stage_of[input]));
}

// Checks that stages ascend in execution order, also those of parallel branches.
void check_stages_ascend(const Setup& setup, const LayerGraph& layers, const std::vector<int>& stage_of) {
    int last = -1;  // the last layer with a stage
    for (int layer = 0; layer < static_cast<int>(stage_of.size()); ++layer) {
        if (stage_of[layer] < 0)
            continue;
        if (last >= 0 && stage_of[last] > stage_of[layer])
            break_rule(setup, kStages,
                       fmt::format("stages do not ascend in execution order: layer '{}' of stage {} runs after '{}' of "
                                   "stage {}",
                                   layers[layer].name, stage_of[layer], layers[last].name, stage_of[last]),
                       fmt::format("move '{}' to stage {} or later", layers[layer].name, stage_of[last]));
        last = layer;
    }
}

// Splits by cuts are in the order of the layers and leave out none.
void check_lists(const Setup& setup, const LayerGraph& layers) {
    if (setup.pipeline.split != PipelineConfig::Split::Lists)
        return;
    const std::vector<int> stage_of = listed_stages(setup, layers);
    check_parameters_have_stages(setup, layers, stage_of);
    check_no_stage_reads_a_later_one(setup, layers, stage_of);
    check_stages_ascend(setup, layers, stage_of);
}

void check_batches(const Setup& setup) {
    const PipelineConfig& pipeline = setup.pipeline;
    if (pipeline.micro_batches < pipeline.stages)
        break_rule(setup, "pipeline.micro_batches",
                   fmt::format("{} stages need at least as many micro-batches, not {}", pipeline.stages,
                               pipeline.micro_batches),
                   fmt::format("write micro_batches: {}", pipeline.stages));
    if (!sizes_of(pipeline).is_even())
        break_rule(
            setup, "pipeline.mini_batch",
            fmt::format("{} samples are not {} equal micro-batches", pipeline.mini_batch, pipeline.micro_batches),
            fmt::format("write mini_batch: {}", std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size));
    if (!pipeline.micro_batch_lengths.empty())
        break_rule(setup, "pipeline.micro_batch_lengths", "micro-batches of unequal length are not equal micro-batches",
                   "remove the key");
}

void check_fp32(const Setup& setup) {
    if (setup.training.precision != Precision::Fp32)
        break_rule(setup, "training.precision",
                   fmt::format("a pipeline computes in fp32, not in {}", name_of(setup.training.precision)),
                   "write precision: fp32");
}

}  // namespace

void check_normalise(const Setup& setup, const Model& model) {
    const std::size_t given = setup.workload.changes.mean.size();
    const auto channels = static_cast<std::size_t>(model.input.channels);
    if (given != 0 && given != channels)
        setup.fail_at("workload.normalise",
                      fmt::format("'workload.normalise' has {} values of mean and of std, but images have {} channel{}",
                                  given, channels, channels == 1 ? "" : "s"),
                      "write one of each per channel, or remove the key");
}

void check_profile_exists(const Setup& setup) {
    const std::string& path = setup.cluster.profile;
    std::error_code error;
    if (!path.empty() && !std::filesystem::exists(path, error))
        setup.fail_at("cluster.profile", fmt::format("there is no file '{}'", path),
                      "measure one with `pipewright profile CONFIG -o PROFILE.yaml`, or remove the key");
}

void check_rules(const Setup& setup, const Model* model) {
    if (setup.pipeline.rules == PipelineConfig::Rules::None)
        return;
    if (model != nullptr)
        check_lists(setup, model->layers);
    check_batches(setup);
    check_fp32(setup);
}

}  // namespace pw

#include "job/slices.h"

#include "job/cost_source.h"
#include "job/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace pw {

namespace {

bool is_sequence(const Model& model) {
    const auto reads_later_rows = [&](const auto number) {
        const Layer& layer = model.layers[number];
        return facts_of(layer.kind).rows == RowsRead::Any && layer.kind != LayerKind::Profiled;
    };
    const auto [first, end] = boost::vertices(model.layers);
    return std::none_of(first, end, reads_later_rows);
}

// Returns the number of slices nearest to `slices` that divides a sequence.
int nearest_divisor(int tokens, int slices) {
    int nearest = 1;
    for (int count = 1; count <= std::min(tokens, kMostSlices); ++count)
        if (tokens % count == 0 && std::abs(count - slices) <= std::abs(nearest - slices))
            nearest = count;
    return nearest;
}

// Returns the tokens of a sequence. 0: not known.
int tokens_of(const Setup& setup) {
    const CostSource source = cost_source_of(setup).source;
    return source == CostSource::File || source == CostSource::Uniform ? 0 : setup.workload.options.sequence_length;
}

bool is_from_file(const Setup& setup) { return setup.pipeline.schedule.ends_with(".csv"); }

void check_lengths(const Setup& setup, int slices) {
    const int tokens = tokens_of(setup);
    const std::vector<int>& given = setup.pipeline.slice_tokens;
    if (tokens == 0)
        return;
    if (!given.empty()) {
        const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
        if (sum != tokens)
            setup.fail_at("pipeline.slices", fmt::format("the slices have {} tokens, a sequence has {}", sum, tokens),
                          fmt::format("write lengths that add up to {}, or a number of slices", tokens));
    } else if (!can_cut(tokens, slices, setup.pipeline.slice_lengths)) {
        if (slices > tokens)
            setup.fail_at("pipeline.slices", fmt::format("{} tokens are not {} slices", tokens, slices),
                          "write fewer slices");
        setup.fail_at("pipeline.slices", fmt::format("{} tokens are not {} equal slices", tokens, slices),
                      fmt::format("write slices: {}, slice_lengths: time, or another workload.sequence_length",
                                  nearest_divisor(tokens, slices)));
    }
}

}  // namespace

int slices_of(const Setup& setup, const Schedule& schedule) {
    if (!schedule.cuts_sequences())
        return 1;
    return setup.pipeline.slices > 0 ? setup.pipeline.slices : schedule.slices;
}

bool can_cut(int tokens, int slices, SliceLengths lengths) {
    return slices <= tokens && (lengths == SliceLengths::Time || tokens % slices == 0);
}

SliceEnds slice_ends_of(const Setup& setup, int slices, double attention, int grain) {
    if (slices == 1 || is_from_file(setup))
        return slice_ends(slices, 0);
    const std::vector<int>& given = setup.pipeline.slice_tokens;
    if (given.empty()) {
        const bool is_even = setup.pipeline.slice_lengths == SliceLengths::Even;
        const int tokens = is_even ? 0 : tokens_of(setup);
        return slice_ends(slices, is_even ? 0 : attention, tokens,
                          tokens % grain == 0 && tokens / grain >= slices ? grain : 1);
    }
    const double all = std::accumulate(given.begin(), given.end(), 0.0);
    SliceEnds ends;
    double end = 0;
    for (const int tokens : given)
        ends.push_back((end += tokens) / all);
    return ends;
}

void check_slices(const Setup& setup, const Model* model) {
    if (is_from_file(setup))
        return;
    const Schedule& schedule = schedule_of(setup);
    const int slices = slices_of(setup, schedule);
    if (slices == 1)
        return;
    if (schedule.trains && !setup.pipeline.recompute.stages.empty())
        setup.fail_at("pipeline.recompute",
                      "later slices read the keys and values of earlier ones, which stages that recompute do not keep",
                      "leave pipeline.recompute out, or write slices: 1");
    if (!schedule.trains && is_replicated(setup.pipeline))
        setup.fail_at("pipeline.replicas",
                      fmt::format("slices of a sequence run on one device of a stage, and schedule {} gives each "
                                  "replica every few slices",
                                  schedule.name),
                      "leave pipeline.replicas out, or write slices: 1");
    if (model == nullptr)
        return;
    if (!is_sequence(*model))
        setup.fail_at("pipeline.schedule",
                      fmt::format("schedule {} cuts sequences into slices, and {} has layers that mix their rows other "
                                  "than by causal attention",
                                  setup.pipeline.schedule, model->name),
                      "take a model such as gpt or llama, or another schedule, such as 1f1b");
    check_lengths(setup, slices);
}

}  // namespace pw

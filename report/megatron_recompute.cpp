#include "report/megatron_recompute.h"

#include "report/layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace pw::megatron {

namespace {

constexpr std::string_view kName = "Megatron-LM";

// The modules that Megatron-LM names. It does not recompute the activation of a dense MLP by itself.
constexpr ModuleSet kMegatronModules =
    set_of(BlockModule::CoreAttention, BlockModule::Norms, BlockModule::UpProjection, BlockModule::ExpertActivation,
           BlockModule::Mlp, BlockModule::Experts, BlockModule::SharedExperts);

// A method of full recomputation and its number of layers.
struct RecomputeMethod {
    std::string_view name;
    int layers;
};

// Returns nothing if the recomputed blocks are no whole number, the same for all stages.
std::optional<RecomputeMethod> method_of(const ExportedPlan& plan) {
    const RecomputedBlocks& blocks = plan.parallel.recomputed;
    if (blocks.are_all() || blocks.rule == BlockRule::Group)
        return RecomputeMethod{"uniform", blocks.group()};
    if (blocks.rule == BlockRule::First)
        return RecomputeMethod{"block", static_cast<int>(blocks.number)};
    if (plan.job == nullptr)
        return RecomputeMethod{"block", 0};  // not asked for
    const double exact = blocks.share_at(-1) * blocks_by_stage(*plan.job).front();
    if (!has_equal_stages(*plan.job) || std::abs(exact - std::round(exact)) > 1e-6)
        return std::nullopt;
    return RecomputeMethod{"block", static_cast<int>(std::round(exact))};
}

}  // namespace

bool has_equal_stages(const Job& job) {
    const std::vector<int> blocks = blocks_by_stage(job);
    for (std::size_t stage = 0; stage + 1 < job.split.layers.size(); ++stage)
        for (const int layer : job.split.layers[stage])
            if (job.model->layers[static_cast<std::size_t>(layer)].part == LayerPart::Mtp)
                return false;
    return std::adjacent_find(blocks.begin(), blocks.end(), std::not_equal_to<>()) == blocks.end();
}

bool recomputes_blocks(const ExportedPlan& plan) { return has(plan.parallel.recompute, BlockModule::Block); }

std::optional<Refusal> refused_blocks(const ExportedPlan& plan) {
    const RecomputedBlocks& blocks = plan.parallel.recomputed;
    if (blocks.are_all() || plan.parallel.recompute == ModuleSet{})
        return std::nullopt;
    if (blocks.group() > 1 && plan.model.mtp > 0)
        return Refusal{"parallel.recompute",
                       fmt::format("{} recomputes modules of further tokens in groups of one block only", kName),
                       "write group: 1"};
    if (!recomputes_blocks(plan))
        return Refusal{"parallel.recompute", fmt::format("{} recomputes modules in all blocks or in none", kName),
                       fmt::format("write kind: full, or remove {}", facts_of(blocks.rule).name)};
    if (method_of(plan))
        return std::nullopt;
    const int count = blocks_by_stage(*plan.job).front();
    return Refusal{
        "parallel.recompute",
        fmt::format("{} recomputes a whole number of blocks, the same in each stage, but a share of {} of {} blocks "
                    "is none",
                    kName, blocks.share_at(-1), count),
        has_equal_stages(*plan.job) ? fmt::format("write a multiple of {:.6g}", 1.0 / count)
                                    : "write first: n, or stages with equally many blocks"};
}

std::optional<Refusal> refused_recompute(const ExportedPlan& plan) {
    const int others = static_cast<int>(plan.parallel.recompute) & ~static_cast<int>(kMegatronModules);
    if (recomputes_blocks(plan) || others == 0)
        return std::nullopt;
    return Refusal{"parallel.recompute",
                   overlap(plan.parallel.recompute, set_of(BlockModule::Activation))
                       ? fmt::format("{} recomputes norms, but no activations of a dense MLP", kName)
                       : fmt::format("{} does not recompute {}", kName, print_modules(static_cast<ModuleSet>(others))),
                   fmt::format("write recompute: none, full, or some of {} joined by +",
                               fmt::join(names_of_modules(kMegatronModules), ", "))};
}

ArgumentText recompute_granularity(const ExportedPlan& plan) {
    return recomputes_blocks(plan) ? "full" : written_if(recomputed_modules(plan).has_value(), "selective");
}

ArgumentText recomputed_modules(const ExportedPlan& plan) {
    if (recomputes_blocks(plan) || plan.parallel.recompute == ModuleSet{} ||
        plan.parallel.recompute == set_of(BlockModule::CoreAttention))
        return std::nullopt;
    return written(fmt::format("{}", fmt::join(names_of_modules(plan.parallel.recompute), " ")));
}

ArgumentText recompute_method(const ExportedPlan& plan) {
    return recomputes_blocks(plan) ? written(method_of(plan)->name) : std::nullopt;
}

ArgumentText recomputed_layers(const ExportedPlan& plan) {
    return recomputes_blocks(plan) ? written(method_of(plan)->layers) : std::nullopt;
}

}  // namespace pw::megatron

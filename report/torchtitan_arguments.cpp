// A TOML of torchtitan 0.2 (torchtitan/config/job_config.py). Later releases take Python instead.
#include "job/plan.h"
#include "report/training_programs.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace torchtitan {

namespace {

constexpr std::string_view kTitan = "torchtitan";

// A model of torchtitan that has the shapes of a preset.
struct Flavor {
    std::string_view preset, model, flavor;
    bool divides_sequences = true;  // has context parallelism: its attention is PyTorch's, not FlexAttention
};
constexpr Flavor kFlavors[] = {{"llama-3-8b", "llama3", "8B"},
                               {"llama-3-70b", "llama3", "70B"},
                               {"llama-3.1-405b", "llama3", "405B"},
                               {"qwen3-8b", "qwen3", "8B"},
                               {"qwen3-14b", "qwen3", "14B"},
                               {"qwen3-32b", "qwen3", "32B"},
                               {"qwen3-30b-a3b", "qwen3", "30B-A3B"},
                               {"qwen3-235b-a22b", "qwen3", "235B-A22B"},
                               {"deepseek-v2-lite", "deepseek_v3", "16B", false},
                               {"deepseek-v2", "deepseek_v3", "236B", false},
                               {"deepseek-v3", "deepseek_v3", "671B", false},
                               {"gpt-oss-20b", "gpt_oss", "20b", false},
                               {"gpt-oss-120b", "gpt_oss", "120b", false}};

// Returns null if torchtitan has no model with these shapes.
const Flavor* flavor_of(const Transformer& model) {
    Transformer shapes = model;
    for (const Flavor& row : kFlavors) {
        const Transformer& preset = *find_transformer(row.preset);
        shapes.name = preset.name;
        shapes.positions = preset.positions;  // torchtitan takes training.seq_len
        if (shapes == preset)
            return &row;
    }
    return nullptr;
}

std::optional<Refusal> refused_model(const ExportedPlan& plan) {
    if (flavor_of(plan.model) != nullptr)
        return std::nullopt;
    if (plan.model.mtp > 0)
        return Refusal{"workload.mtp_layers", fmt::format("{} predicts no further tokens", kTitan),
                       "write mtp_layers: 0"};
    std::vector<std::string_view> presets;
    for (const Flavor& row : kFlavors)
        presets.push_back(row.preset);
    return Refusal{"workload.model", fmt::format("{} has no model with the shapes of {}", kTitan, plan.model.name),
                   fmt::format("name one of {}", fmt::join(presets, ", "))};
}

std::optional<Refusal> refused_sequence(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    if (parallel.tensor > 1 && !parallel.sequence)
        return Refusal{"parallel.sequence",
                       fmt::format("{} has tensor parallelism with sequence parallelism only", kTitan),
                       "remove the key"};
    const int parts = parallel.tensor * (parallel.context > 1 ? 2 * parallel.context : 1);
    if (plan.tokens % parts != 0)
        return Refusal{"workload.sequence_length",
                       fmt::format("{} cuts a sequence into {} parts, which do not divide its {} tokens", kTitan, parts,
                                   plan.tokens),
                       fmt::format("write a multiple of {}", parts)};
    return std::nullopt;
}

std::optional<Refusal> refused_context(const ExportedPlan& plan) {
    const Flavor& flavor = *flavor_of(plan.model);
    if (plan.parallel.context > 1 && !flavor.divides_sequences)
        return Refusal{"parallel.context", fmt::format("{} has no context parallelism for {}", kTitan, flavor.model),
                       "write context: 1"};
    return std::nullopt;
}

std::optional<Refusal> refused_attention(const ExportedPlan& plan) {
    if (plan.release.attention != AttentionKernels::Unfused)
        return std::nullopt;
    return Refusal{"parallel.attention", fmt::format("the attention of {} is one kernel", kTitan),
                   "write attention: flash"};
}

// How torchtitan divides replicas: ranks that share weights (FSDP, with the ranks of context parallelism), and groups
// of such ranks.
struct Replicas {
    int sharers, replicated, sharded;
};

Replicas replicas_of(const Parallel& parallel) {
    const int sharers = parallel.zero < 2 ? 1 : parallel.sharers();
    return {sharers, parallel.replicas() / sharers, sharers / parallel.context};
}

std::optional<Refusal> refused_zero(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    if (parallel.zero == 1 && parallel.replicas() > 1)
        return Refusal{"parallel.zero",
                       fmt::format("{} divides gradients wherever it divides the states of the optimizer", kTitan),
                       "write zero: 2 or 3"};
    if (parallel.zero < 2 && parallel.context > 1)
        return Refusal{"parallel.zero",
                       fmt::format("{} divides weights among the ranks of context parallelism, too", kTitan),
                       "write zero: 2 or 3"};
    const Replicas replicas = replicas_of(parallel);
    if (replicas.sharers % parallel.context != 0 || parallel.replicas() % replicas.sharers != 0)
        return Refusal{"parallel.zero_group",
                       fmt::format("{} shares weights among multiples of the {} ranks of context parallelism that "
                                   "divide the {} replicas, not {}",
                                   kTitan, parallel.context, parallel.replicas(), replicas.sharers),
                       "write such a multiple, or remove the key"};
    if (replicas.sharers == 1 && replicas.replicated > 1 &&
        (parallel.tensor > 1 || parallel.pipeline > 1 || parallel.expert > 1))
        return Refusal{"parallel.zero",
                       fmt::format("{} has whole copies of weights only without other parallelism", kTitan),
                       "write zero: 2 or 3"};
    return std::nullopt;
}

std::optional<Refusal> refused_experts(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    const int tensor = parallel.tensor, parts = parallel.expert_tensor;
    if (!plan.model.experts)
        return std::nullopt;
    if (parallel.expert == 1 && tensor > 1 && parts == 1)
        return Refusal{
            "parallel.expert",
            fmt::format("{} divides experts among the {} ranks of tensor parallelism, if not among others", kTitan,
                        tensor),
            fmt::format("write parallel.expert_tensor: {}, a degree above 1, or parallel.tensor: 1", tensor)};
    if (parts != 1 && parts != tensor)
        return Refusal{"parallel.expert_tensor",
                       fmt::format("{} divides the width of an expert among all {} ranks of tensor parallelism or none",
                                   kTitan, tensor),
                       fmt::format("write {}", tensor == 1 ? "1" : fmt::format("1 or {}", tensor))};
    const int group = replicas_of(parallel).sharded * parallel.context * tensor / parts;
    if (group % parallel.expert != 0)
        return Refusal{"parallel.expert",
                       fmt::format("{} divides experts among ranks that share weights, {} of a stage, not {}", kTitan,
                                   group, parallel.expert),
                       fmt::format("write a divisor of {}", group)};
    if (plan.release.experts == ExpertKernels::Sequential)
        return Refusal{"parallel.expert_kernels", fmt::format("{} computes experts in one call", kTitan),
                       "write expert_kernels: grouped"};
    if (parallel.expert_dispatcher.value_or(ExpertDispatcher::Gathered) != ExpertDispatcher::Gathered)
        return Refusal{"parallel.expert_dispatcher",
                       fmt::format("{} gathers the tokens of the ranks of tensor parallelism", kTitan),
                       "write expert_dispatcher: gathered, or remove the key"};
    if (parallel.expert > 1 && plan.release.overlap.expert)
        return Refusal{"parallel.overlap", fmt::format("{} overlaps messages of experts only in DualPipeV", kTitan),
                       "remove expert"};
    return std::nullopt;
}

bool is_low(const ExportedPlan& plan) { return plan.training.precision != Precision::Fp32; }

std::optional<Refusal> refused_precision(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    const Precision precision = plan.training.precision;
    if (precision == Precision::Fp16 || precision == Precision::Tf32 || precision == Precision::Nvfp4)
        return Refusal{"training.precision", fmt::format("{} does not train in {}", kTitan, name_of(precision)),
                       "write precision: bf16, fp8, mxfp8 or fp32"};
    if (is_low(plan) && replicas_of(parallel).sharded * parallel.context == 1 &&
        (parallel.tensor > 1 || parallel.pipeline > 1))
        return Refusal{"training.precision",
                       fmt::format("with tensor or pipeline parallelism, {} computes in {} only where replicas share "
                                   "weights",
                                   kTitan, name_of(precision)),
                       "add devices and write parallel.zero: 3, or precision: fp32"};
    if (const std::optional<Refusal> refusal = refused_types(plan, kTitan, {}))
        return refusal;
    if (is_low(plan) && facts_of(parallel.trained_by()).gradient < kFloatBytes)
        return Refusal{"parallel.release", fmt::format("{} sums gradients in fp32", kTitan),
                       "write release: torchtitan"};
    return std::nullopt;
}

std::optional<Refusal> refused_schedule_of_titan(const ExportedPlan& plan) {
    if (plan.alternates)
        return std::nullopt;
    const bool has_name = plan.schedule != nullptr && !plan.schedule->elsewhere.pytorch.empty();
    if (!has_name || (plan.schedule->chunks == 1 && plan.chunks() > 1) || plan.parallel.pipeline == 1)
        return refused_schedule(plan, kTitan, [](const OtherPrograms& programs) { return !programs.pytorch.empty(); });
    Setup usual = plan.setup;
    usual.pipeline.options.drain = ScheduleOptions::Drain::Own;
    usual.pipeline.options.group = 0;
    usual.pipeline.options.pairs = false;
    const ScheduleOptions& options = plan.pipeline.options;
    const bool may_differ = usual.pipeline.options.drain != options.drain || options.group > 0 || options.pairs;
    if (!may_differ || make_plan(usual, {}, 1).order == make_plan(plan.setup, {}, 1).order)
        return std::nullopt;
    return Refusal{options.pairs       ? "pipeline.pairs"
                   : options.group > 0 ? "pipeline.group"
                                       : "pipeline.drain",
                   fmt::format("{} has one order of {} for each number of micro-batches", kTitan,
                               plan.schedule->elsewhere.pytorch),
                   "remove the key"};
}

// Returns how many blocks there are for each recomputed block, or 0 if that is no whole number.
int recomputed_one_of(const Parallel& parallel) {
    const RecomputedBlocks& blocks = parallel.recomputed;
    if (blocks.rule != BlockRule::Share && blocks.rule != BlockRule::Every)
        return blocks.are_all() ? 1 : 0;
    const double every = 1 / blocks.share_at(-1);
    const bool is_whole = std::isfinite(every) && std::abs(every - std::round(every)) <= 1e-6;
    return is_whole ? static_cast<int>(std::round(every)) : 0;
}

bool recomputes_operators(const Parallel& parallel) {
    return parallel.recompute == set_of(BlockModule::Operators) && parallel.recomputed.are_all();
}

std::optional<Refusal> refused_recompute(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    if (parallel.recompute == ModuleSet{} || recomputes_operators(parallel) ||
        (has(parallel.recompute, BlockModule::Block) && recomputed_one_of(parallel) > 0))
        return std::nullopt;
    return Refusal{"parallel.recompute",
                   fmt::format("{} recomputes operators, or whole blocks: all, or every n-th one", kTitan),
                   "write recompute: none, operators, full, or {kind: full, every: n}"};
}

std::optional<Refusal> refused_optimizer(const ExportedPlan& plan) {
    return refused_optimizer_of(plan, kTitan, &OptimizerNames::torchtitan);
}

bool overlaps_tensor(const ExportedPlan& plan) { return plan.release.overlap.tensor && plan.parallel.tensor > 1; }

std::optional<Refusal> refused_overlap(const ExportedPlan& plan) {
    if (!overlaps_tensor(plan) || plan.release.fuses)
        return std::nullopt;
    return Refusal{"parallel.overlap",
                   fmt::format("{} overlaps messages of tensor parallelism only if it is compiled", kTitan),
                   "write release: torchtitan-compiled, or remove tensor"};
}

// Numbers of a TOML: a point or an exponent makes them floating.
std::string floating(double value) {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

ArgumentText quoted_text(std::string_view text) { return fmt::format("\"{}\"", text); }
ArgumentText quoted_if(bool has, std::string_view text) { return has ? quoted_text(text) : std::nullopt; }

// The modules of each stage, as all models of torchtitan name them.
std::string modules_of(const Job& job) {
    std::string text = "[\n";
    for (const std::vector<int>& layers : job.split.layers) {
        std::vector<std::string> modules;
        for (const int layer : layers) {
            const LayerPart part = *job.model->layers[static_cast<std::size_t>(layer)].part;
            if (part == LayerPart::Embedding)
                modules.emplace_back("\"tok_embeddings\"");
            else if (part == LayerPart::Block)
                modules.push_back(fmt::format("\"layers.{}\"", layer - 1));  // after the embedding
            else
                modules.insert(modules.end(), {"\"norm\"", "\"output\""});
        }
        text += fmt::format("    [{}],\n", fmt::join(modules, ", "));
    }
    return text + "]";
}

ArgumentText converters_of(const ExportedPlan& plan) {
    const Precision precision = plan.training.precision;
    if (precision == Precision::Fp8)
        return "[\"quantize.linear.float8\"]";
    return written_if(precision == Precision::Mxfp8, "[\"quantize.linear.mx\"]");
}

std::string_view mode_of(const ExportedPlan& plan) {
    if (plan.parallel.recompute == ModuleSet{})
        return "none";
    return recomputes_operators(plan.parallel) || recomputed_one_of(plan.parallel) > 1 ? "selective" : "full";
}

// What mode "selective" recomputes: operators, or every n-th block.
ArgumentText selective_option(const ExportedPlan& plan) {
    if (recomputes_operators(plan.parallel))
        return quoted_text("op");
    const int every = recomputed_one_of(plan.parallel);
    return quoted_if(plan.parallel.recompute != ModuleSet{} && every > 1, fmt::format("{}", every));
}

// In the order of the text.
constexpr ArgumentRow kRows[] = {
    {"model.name", [](const ExportedPlan& plan) { return quoted_text(flavor_of(plan.model)->model); }, refused_model},
    {"model.flavor", [](const ExportedPlan& plan) { return quoted_text(flavor_of(plan.model)->flavor); }},
    {"model.converters", converters_of},
    {"training.local_batch_size",  // without a pipeline, gradients are summed over local batches
     [](const ExportedPlan& plan) {
         return written(plan.parallel.pipeline > 1 ? sizes_of(plan.pipeline).mini_batch
                                                   : plan.pipeline.micro_batch_size);
     }},
    {"training.global_batch_size", [](const ExportedPlan& plan) { return written(plan.global_batch()); }},
    {"training.seq_len", [](const ExportedPlan& plan) { return written(plan.tokens); }, refused_sequence},
    {"training.max_norm",
     [](const ExportedPlan& plan) {
         const double most = plan.training.clip_norm;
         return written(most > 0 ? floating(most) : "inf");
     },
     nullptr, "training.clip_norm"},
    {"training.mixed_precision_param",
     [](const ExportedPlan& plan) { return quoted_text(is_low(plan) ? "bfloat16" : "float32"); }},
    {"", nullptr, refused_attention},
    {"parallelism.data_parallel_replicate_degree",
     [](const ExportedPlan& plan) { return written(replicas_of(plan.parallel).replicated); }, refused_zero},
    {"parallelism.data_parallel_shard_degree",
     [](const ExportedPlan& plan) { return written(replicas_of(plan.parallel).sharded); }, refused_precision},
    {"parallelism.fsdp_reshard_after_forward",
     [](const ExportedPlan& plan) {
         return quoted_if(plan.parallel.zero >= 2, plan.parallel.zero == 3 ? "always" : "never");
     }},
    {"parallelism.tensor_parallel_degree", [](const ExportedPlan& plan) { return written(plan.parallel.tensor); }},
    {"parallelism.enable_async_tensor_parallel",
     [](const ExportedPlan& plan) { return written_if(overlaps_tensor(plan), true); }, refused_overlap},
    {"parallelism.context_parallel_degree", [](const ExportedPlan& plan) { return written(plan.parallel.context); },
     refused_context},
    {"parallelism.expert_parallel_degree",
     [](const ExportedPlan& plan) { return written_if(plan.model.experts.has_value(), plan.parallel.expert); },
     refused_experts},
    {"parallelism.expert_tensor_parallel_degree",
     [](const ExportedPlan& plan) { return written_if(plan.model.experts.has_value(), plan.parallel.expert_tensor); }},
    {"parallelism.pipeline_parallel_degree", [](const ExportedPlan& plan) { return written(plan.parallel.pipeline); }},
    {"parallelism.pipeline_parallel_schedule",
     [](const ExportedPlan& plan) -> ArgumentText {
         return plan.alternates ? std::nullopt : quoted_text(plan.schedule->elsewhere.pytorch);
     },
     refused_schedule_of_titan},
    {"parallelism.pipeline_parallel_microbatch_size",
     [](const ExportedPlan& plan) { return written_if(!plan.alternates, plan.pipeline.micro_batch_size); }},
    {"parallelism.module_fqns_per_model_part",
     [](const ExportedPlan& plan) { return written_if(!plan.alternates, modules_of(*plan.job)); }},
    {"activation_checkpoint.mode", [](const ExportedPlan& plan) { return quoted_text(mode_of(plan)); },
     refused_recompute},
    {"activation_checkpoint.selective_ac_option", selective_option},
    {"optimizer.name",
     [](const ExportedPlan& plan) { return quoted_text(facts_of(plan.training.optimizer).names.torchtitan); },
     refused_optimizer},
    {"optimizer.lr", [](const ExportedPlan& plan) { return written(floating(plan.training.learning_rate)); }, nullptr,
     "training.learning_rate"},
    {"optimizer.beta1", [](const ExportedPlan& plan) { return written(floating(plan.training.betas[0])); }, nullptr,
     "training.betas"},
    {"optimizer.beta2", [](const ExportedPlan& plan) { return written(floating(plan.training.betas[1])); }, nullptr,
     "training.betas"},
    {"optimizer.eps", [](const ExportedPlan& plan) { return written(floating(plan.training.epsilon)); }, nullptr,
     "training.epsilon"},
    {"optimizer.weight_decay", [](const ExportedPlan& plan) { return written(floating(plan.training.weight_decay)); },
     nullptr, "training.weight_decay"},
    {"compile.enable", [](const ExportedPlan& plan) { return written(plan.release.fuses); }},
};

// Returns a TOML. Arguments of a section are neighbours.
std::string toml_of(const std::vector<Argument>& arguments) {
    std::string text;
    std::string_view before;
    for (const Argument& argument : arguments) {
        const std::size_t dot = argument.name.find('.');
        const std::string_view section = argument.name.substr(0, dot);
        if (section != before)
            text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
        before = section;
        text += fmt::format("{} = {}\n", argument.name.substr(dot + 1), argument.value);
    }
    return text;
}

Notices notes_of(const ExportedPlan&) {
    return {"add the data, model.hf_assets_path, training.steps and how the learning rate changes"};
}

}  // namespace

}  // namespace torchtitan

ProgramTable torchtitan_table() { return {torchtitan::kRows, torchtitan::toml_of, torchtitan::notes_of}; }

}  // namespace pw

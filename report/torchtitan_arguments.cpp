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

const Flavor& flavor_of(const Config& config) {
    Transformer shapes = *config.workload.transformer;
    for (const Flavor& row : kFlavors) {
        const Transformer& preset = *find_transformer(row.preset);
        shapes.name = preset.name;
        shapes.positions = preset.positions;  // torchtitan takes training.seq_len
        if (shapes == preset)
            return row;
    }
    std::vector<std::string_view> presets;
    for (const Flavor& row : kFlavors)
        presets.push_back(row.preset);
    config.fail_at("workload.model",
                   fmt::format("{} has no model with the shapes of {}", kTitan, config.workload.transformer->name),
                   fmt::format("name one of {}", fmt::join(presets, ", ")));
}

// How torchtitan divides replicas: ranks that share weights (FSDP, with those of context parallelism), and groups of
// them.
struct Replicas {
    int replicated = 1, sharded = 1;
};

Replicas replicas_of(const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    if (parallel.zero == 1 && parallel.replicas() > 1)
        config.fail_at("parallel.zero",
                       fmt::format("{} divides gradients wherever it divides the states of the optimizer", kTitan),
                       "write zero: 2 or 3");
    if (parallel.zero < 2 && parallel.context > 1)
        config.fail_at("parallel.zero",
                       fmt::format("{} divides weights among the ranks of context parallelism, too", kTitan),
                       "write zero: 2 or 3");
    const int sharers = parallel.zero < 2 ? 1 : parallel.sharers();
    if (sharers % parallel.context != 0 || parallel.replicas() % sharers != 0)
        config.fail_at(
            "parallel.zero_group",
            fmt::format("{} shares weights among multiples of the {} ranks of context parallelism that divide "
                        "the {} replicas, not {}",
                        kTitan, parallel.context, parallel.replicas(), sharers),
            "write such a multiple, or remove the key");
    const Replicas replicas{parallel.replicas() / sharers, sharers / parallel.context};
    if (sharers == 1 && replicas.replicated > 1 &&
        (parallel.tensor > 1 || parallel.pipeline > 1 || parallel.expert > 1))
        config.fail_at("parallel.zero",
                       fmt::format("{} has whole copies of weights only without other parallelism", kTitan),
                       "write zero: 2 or 3");
    return replicas;
}

void check_experts(const Config& config, const Replicas& replicas) {
    const Parallel& parallel = config.parallel.degrees;
    if (!config.workload.transformer->experts)
        return;
    if (parallel.expert == 1 && parallel.tensor > 1)
        config.fail_at("parallel.expert",
                       fmt::format("{} divides experts among the {} ranks of tensor parallelism, if not among others",
                                   kTitan, parallel.tensor),
                       "write a degree above 1, or parallel.tensor: 1");
    const int group = replicas.sharded * parallel.context * parallel.tensor;
    if (group % parallel.expert != 0)
        config.fail_at("parallel.expert",
                       fmt::format("{} divides experts among ranks that share weights, {} of a stage, not {}", kTitan,
                                   group, parallel.expert),
                       fmt::format("write a divisor of {}", group));
    if (parallel.expert > 1 && parallel.program().overlap.expert)
        config.fail_at("parallel.overlap", fmt::format("{} overlaps messages of experts only in DualPipeV", kTitan),
                       "remove expert");
}

void check_degrees_of_titan(const Config& config, const Flavor& flavor) {
    const Parallel& parallel = config.parallel.degrees;
    const int tokens = config.workload.options.sequence_length;
    if (parallel.tensor > 1 && !parallel.sequence)
        config.fail_at("parallel.sequence",
                       fmt::format("{} has tensor parallelism with sequence parallelism only", kTitan),
                       "remove the key");
    if (parallel.context > 1 && !flavor.divides_sequences)
        config.fail_at("parallel.context", fmt::format("{} has no context parallelism for {}", kTitan, flavor.model),
                       "write context: 1");
    const int parts = parallel.tensor * (parallel.context > 1 ? 2 * parallel.context : 1);
    if (tokens % parts != 0)
        config.fail_at(
            "workload.sequence_length",
            fmt::format("{} cuts a sequence into {} parts, which do not divide its {} tokens", kTitan, parts, tokens),
            fmt::format("write a multiple of {}", parts));
    if (parallel.program().attention == AttentionKernels::Unfused)
        config.fail_at("parallel.attention", fmt::format("the attention of {} is one kernel", kTitan),
                       "write attention: flash");
}

// Numbers of a TOML: a point or an exponent makes them floating.
std::string floating(double value) {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

// The modules of each stage; all models of torchtitan name them so.
std::string stages_of(const Job& job) {
    std::string text = "module_fqns_per_model_part = [\n";
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
    return text + "]\n";
}

std::string pipeline_of(const Job& job) {
    const Config& config = job.config;
    std::string text = fmt::format("pipeline_parallel_degree = {}\n", config.parallel.degrees.pipeline);
    if (alternates_on_one_device(job))
        return text;
    const Schedule& schedule = schedule_of(config);
    const std::string_view name = schedule.elsewhere.pytorch;
    const bool fits = schedule.chunks > 1 || job.plan.shape.stages == job.plan.shape.devices;
    if (name.empty() || !fits || config.parallel.degrees.pipeline == 1)
        refuse_schedule(job, kTitan, [](const OtherPrograms& programs) { return !programs.pytorch.empty(); });
    Config own = config;
    own.pipeline.drain = ScheduleOptions::Drain::Own;
    own.pipeline.group = 0;
    if (make_plan(own, {job.plan.shape.edges, job.plan.shape.ties}, 1).order != job.plan.order)
        config.fail_at(config.pipeline.group > 0 ? "pipeline.group" : "pipeline.drain",
                       fmt::format("{} has one order of {} for each number of micro-batches", kTitan, name),
                       "remove the key");
    text += fmt::format("pipeline_parallel_schedule = {}\npipeline_parallel_microbatch_size = {}\n", quoted(name),
                        config.pipeline.micro_batch_size);
    return text + stages_of(job);
}

std::string parallelism_of(const Job& job, const Replicas& replicas) {
    const Parallel& parallel = job.config.parallel.degrees;
    std::string text = "\n[parallelism]\n";
    text += fmt::format("data_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n", replicas.replicated,
                        replicas.sharded);
    if (parallel.zero >= 2)
        text += fmt::format("fsdp_reshard_after_forward = {}\n", quoted(parallel.zero == 3 ? "always" : "never"));
    text += fmt::format("tensor_parallel_degree = {}\n", parallel.tensor);
    if (parallel.program().overlap.tensor && parallel.tensor > 1)
        text += "enable_async_tensor_parallel = true\n";
    text += fmt::format("context_parallel_degree = {}\n", parallel.context);
    if (job.config.workload.transformer->experts)
        text += fmt::format("expert_parallel_degree = {}\nexpert_tensor_parallel_degree = 1\n", parallel.expert);
    return text + pipeline_of(job);
}

std::string model_of(const Config& config, const Flavor& flavor) {
    const Precision precision = config.training.precision;
    std::string text = fmt::format("[model]\nname = {}\nflavor = {}\n", quoted(flavor.model), quoted(flavor.flavor));
    if (precision == Precision::Fp8)
        text += "converters = [\"quantize.linear.float8\"]\n";
    if (precision == Precision::Mxfp8)
        text += "converters = [\"quantize.linear.mx\"]\n";
    return text;
}

std::string training_of(const Config& config, const Replicas& replicas) {
    const TrainingConfig& training = config.training;
    const PipelineConfig& pipeline = config.pipeline;
    const Parallel& parallel = config.parallel.degrees;
    const Precision precision = training.precision;
    if (precision == Precision::Fp16 || precision == Precision::Tf32 || precision == Precision::Nvfp4)
        config.fail_at("training.precision", fmt::format("{} does not train in {}", kTitan, name_of(precision)),
                       "write precision: bf16, fp8, mxfp8 or fp32");
    const bool is_low = precision != Precision::Fp32;
    if (is_low && replicas.sharded * parallel.context == 1 && (parallel.tensor > 1 || parallel.pipeline > 1))
        config.fail_at("training.precision",
                       fmt::format("with tensor or pipeline parallelism, {} computes in {} only where replicas share "
                                   "weights",
                                   kTitan, name_of(precision)),
                       "add devices and write parallel.zero: 3, or precision: fp32");
    if (is_low && facts_of(parallel.release).gradient < kFloatBytes)
        config.fail_at("parallel.release", fmt::format("{} sums gradients in fp32", kTitan),
                       "write release: torchtitan");
    // Micro-batches of a pipeline are parts of the local batch; without one, gradients are summed over local batches.
    const std::int64_t local = parallel.pipeline > 1 ? pipeline.mini_batch : pipeline.micro_batch_size;
    std::string text = fmt::format("\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n", local,
                                   global_batch(config), config.workload.options.sequence_length);
    text += training.clip_norm > 0 ? fmt::format("max_norm = {}\n", floating(training.clip_norm)) : "max_norm = inf\n";
    return text + fmt::format("mixed_precision_param = {}\n", quoted(is_low ? "bfloat16" : "float32"));
}

std::string optimizer_of(const Config& config) {
    const TrainingConfig& training = config.training;
    if (training.optimizer != OptimizerKind::AdamW)
        config.fail_at("training.optimizer", fmt::format("{} has no {}", kTitan, name_of(training.optimizer)),
                       "write optimizer: adamw");
    return fmt::format(
        "\n[optimizer]\nname = \"AdamW\"\nlr = {}\nbeta1 = {}\nbeta2 = {}\neps = {}\nweight_decay = {}\n",
        floating(training.learning_rate), floating(training.betas[0]), floating(training.betas[1]),
        floating(training.epsilon), floating(training.weight_decay));
}

// Returns how many blocks there are for each that is recomputed.
int recomputed_one_of(const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    const double every = 1 / parallel.recomputed;
    if (parallel.recompute != RecomputeKind::Full || !std::isfinite(every) ||
        std::abs(every - std::round(every)) > 1e-6)
        config.fail_at("parallel.recompute", fmt::format("{} recomputes whole blocks: all, or every n-th one", kTitan),
                       "write recompute: none, full, or {kind: full, share: 1/n}, with the quotient as a number");
    return static_cast<int>(std::round(every));
}

std::string recomputing_of(const Config& config) {
    std::string text = "\n[activation_checkpoint]\n";
    if (config.parallel.degrees.recompute == RecomputeKind::None)
        return text + "mode = \"none\"\n";
    const int every = recomputed_one_of(config);
    if (every == 1)
        return text + "mode = \"full\"\n";
    return text + fmt::format("mode = \"selective\"\nselective_ac_option = \"{}\"\n", every);
}

std::string compiling_of(const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    const bool compiles = parallel.program().fuses;
    if (parallel.program().overlap.tensor && parallel.tensor > 1 && !compiles)
        config.fail_at("parallel.overlap",
                       fmt::format("{} overlaps messages of tensor parallelism only if it is compiled", kTitan),
                       "write release: torchtitan-compiled, or remove tensor");
    return fmt::format("\n[compile]\nenable = {}\n", compiles);
}

}  // namespace

TrainingArguments torchtitan_arguments(const Job& job) {
    const Config& config = job.config;
    const Flavor& flavor = flavor_of(config);
    check_degrees_of_titan(config, flavor);
    const Replicas replicas = replicas_of(config);
    check_experts(config, replicas);
    return {model_of(config, flavor) + training_of(config, replicas) + parallelism_of(job, replicas) +
                recomputing_of(config) + optimizer_of(config) + compiling_of(config),
            {ranks_of(config), "add the data, model.hf_assets_path, training.steps and how the learning rate changes"}};
}

}  // namespace pw

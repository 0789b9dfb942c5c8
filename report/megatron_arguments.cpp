// Arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py, core 0.15 and 0.16).
#include "job/plan.h"
#include "report/layouts.h"
#include "report/training_programs.h"
#include "schedules/orders/chunk_groups.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::string_view kMegatron = "Megatron-LM";

// The arguments, one per line.
struct Lines {
    std::string text;
    void add(std::string_view name) { text += fmt::format("--{}\n", name); }
    template <class Value>
    void add(std::string_view name, const Value& value) {
        text += fmt::format("--{} {}\n", name, value);
    }
    void add_if(bool has, std::string_view name) {
        if (has)
            add(name);
    }
};

// Returns flags of layers as Megatron-LM evaluates them: "[0]*3+[1]*58".
std::string runs_of(const std::vector<bool>& flags) {
    std::string text;
    for (auto begin = flags.begin(), end = begin; begin != flags.end(); begin = end) {
        end = std::find(begin, flags.end(), !*begin);
        text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", *begin ? 1 : 0, end - begin);
    }
    return text;
}

template <class Has>
std::string runs_of_layers(const Transformer& model, Has has) {
    std::vector<bool> flags;
    for (int layer = 0; layer < model.layers; ++layer)
        flags.push_back(has(layer));
    return runs_of(flags);
}

void add_stages(Lines& lines, const Job& job) {
    const std::vector<int> blocks = blocks_by_stage(job);
    const int chunks = job.plan.shape.stages / job.plan.shape.devices;
    if (std::adjacent_find(blocks.begin(), blocks.end(), std::not_equal_to<>()) == blocks.end()) {
        if (chunks > 1)
            lines.add("num-layers-per-virtual-pipeline-stage", blocks.front());
        return;
    }
    const std::string layout = megatron_layout(job.config.workload, job.model->layers, job.split);
    if (layout.empty())
        job.config.fail_at("pipeline.split", "Megatron-LM takes stages that are ranges of whole blocks",
                           "remove the key, or cut between blocks");
    lines.add("pipeline-model-parallel-layout", layout);
}

bool is_in_megatron(const OtherPrograms& programs) { return programs.megatron; }

void add_interleaving(Lines& lines, const Job& job) {
    const Config& config = job.config;
    const int devices = job.plan.shape.devices, micro_batches = job.plan.shape.microbatches;
    if (devices == 1 || job.plan.shape.stages == devices)
        refuse_schedule(job, kMegatron, is_in_megatron);
    const int group = group_size(job.plan.shape, {.group = config.pipeline.group});
    const int rest = micro_batches % group;
    if (group < devices || (rest > 0 && rest < devices))
        config.fail_at("pipeline.micro_batches",
                       fmt::format("{} interleaves groups of at least {} micro-batches, but {} are in groups of {}",
                                   kMegatron, devices, micro_batches, group),
                       fmt::format("write a multiple of {}", devices));
    if (group != devices)
        lines.add("microbatch-group-size-per-virtual-pipeline-stage", group);
    if (config.parallel.degrees.program().overlap.pipeline)
        return;
    if (devices == 2)
        config.fail_at("parallel.overlap",
                       "on two ranks Megatron-LM interleaves stages only if their messages overlap passes",
                       "add pipeline to parallel.overlap, or write schedule: 1f1b");
    lines.add("no-overlap-p2p-communication");
}

void add_pipeline(Lines& lines, const Job& job) {
    const Schedule& schedule = schedule_of(job.config);
    if (!alternates_on_one_device(job)) {
        if (!schedule.elsewhere.megatron)
            refuse_schedule(job, kMegatron, is_in_megatron);
        if (schedule.chunks > 1)
            add_interleaving(lines, job);
    }
    add_stages(lines, job);
}

void add_degrees(Lines& lines, const Job& job) {
    const Parallel& parallel = job.config.parallel.degrees;
    const Transformer& model = *job.config.workload.transformer;
    lines.add("tensor-model-parallel-size", parallel.tensor);
    lines.add_if(parallel.sequence && parallel.tensor > 1, "sequence-parallel");
    lines.add("pipeline-model-parallel-size", parallel.pipeline);
    lines.add("context-parallel-size", parallel.context);
    if (parallel.context > 1 && job.config.workload.options.sequence_length % (2 * parallel.context) != 0)
        job.config.fail_at("parallel.context",
                           fmt::format("{} cuts a sequence into 2 x {} parts, which do not divide its {} tokens",
                                       kMegatron, parallel.context, job.config.workload.options.sequence_length),
                           "write a smaller degree");
    if (!model.latent && model.key_value_heads % parallel.tensor != 0 && parallel.tensor % model.key_value_heads != 0)
        job.config.fail_at("parallel.tensor",
                           fmt::format("{} takes a divisor or a multiple of the {} heads of keys and values, not {}",
                                       kMegatron, model.key_value_heads, parallel.tensor),
                           "write such a degree");
    if (!model.experts)
        return;
    if (parallel.tensor > 1 && !parallel.sequence)
        job.config.fail_at(
            "parallel.sequence",
            fmt::format("{} trains experts with tensor parallelism only if it has sequence parallelism, too",
                        kMegatron),
            "remove the key, or write parallel.tensor: 1");
    lines.add("expert-model-parallel-size", parallel.expert);
    lines.add("expert-tensor-parallel-size", 1);
}

void add_attention(Lines& lines, const Config& config) {
    const Transformer& model = *config.workload.transformer;
    lines.add("num-attention-heads", model.heads);
    if (const auto& latent = model.latent) {
        lines.add("multi-latent-attention");
        if (latent->query_rank > 0)
            lines.add("q-lora-rank", latent->query_rank);
        lines.add("kv-lora-rank", latent->key_value_rank);
        lines.add("qk-head-dim", latent->plain_width);
        lines.add("qk-pos-emb-head-dim", latent->rotary_width);
        lines.add("v-head-dim", latent->value_width);
    } else {
        if (model.key_value_heads != model.heads) {
            lines.add("group-query-attention");
            lines.add("num-query-groups", model.key_value_heads);
        }
        lines.add("kv-channels", model.head_width);
    }
    lines.add_if(model.normed_heads, "qk-layernorm");
    if (model.window > 0) {
        lines.add("window-size", fmt::format("{},0", model.window));
        if (model.window_every > 1)
            lines.add("window-attn-skip-freq",
                      runs_of_layers(model, [&](int layer) { return model.has_window(layer); }));
    }
    if (model.position == PositionKind::Alibi)
        config.fail_at("workload.model", fmt::format("{} has no ALiBi positions, which {} has", kMegatron, model.name),
                       "name a model with learned or rotary positions");
    lines.add("position-embedding-type", model.position == PositionKind::Rotary ? "rope" : "learned_absolute");
    constexpr std::string_view kBackends[] = {"flash", "fused", "unfused"};  // by AttentionKernels
    lines.add("attention-backend", kBackends[static_cast<std::size_t>(config.parallel.degrees.program().attention)]);
}

void add_experts(Lines& lines, const Config& config) {
    const Transformer& model = *config.workload.transformer;
    const Experts& experts = *model.experts;
    lines.add("num-experts", experts.count);
    lines.add("moe-router-topk", experts.active);
    lines.add_if(experts.active == 1, "moe-router-pre-softmax");
    lines.add("moe-ffn-hidden-size", experts.width);
    if (experts.shared_width > 0)
        lines.add("moe-shared-expert-intermediate-size", experts.shared_width);
    if (experts.first > 0 || experts.every > 1)
        lines.add("moe-layer-freq", runs_of_layers(model, [&](int layer) { return model.has_experts(layer); }));
    const bool sends_once = config.parallel.degrees.program().sends_once && config.parallel.degrees.expert > 1;
    lines.add("moe-token-dispatcher-type", sends_once ? "flex" : "alltoall");
    lines.add_if(sends_once, "moe-enable-deepep");
}

void add_model(Lines& lines, const Config& config) {
    const Transformer& model = *config.workload.transformer;
    const int tokens = config.workload.options.sequence_length;
    lines.add("num-layers", model.layers);
    lines.add("hidden-size", model.hidden);
    lines.add("ffn-hidden-size", model.ffn);
    add_attention(lines, config);
    if (model.experts)
        add_experts(lines, config);
    if (model.norm == NormKind::BareLayerNorm)
        config.fail_at("workload.model",
                       fmt::format("{} has no LayerNorm without a bias, which {} has", kMegatron, model.name),
                       "name a model with another norm");
    lines.add("normalization", model.norm == NormKind::RmsNorm ? "RMSNorm" : "LayerNorm");
    lines.add_if(model.gated, "swiglu");
    lines.add_if(!model.bias, "disable-bias-linear");
    lines.add_if(!model.bias && model.attention_bias, "add-qkv-bias");
    lines.add_if(!model.tied, "untie-embeddings-and-output-weights");
    lines.add("vocab-size", model.vocabulary);
    lines.add("make-vocab-size-divisible-by", 128);  // as in TransformerLayers::gathered_vocabulary()
    lines.add("seq-length", tokens);
    lines.add("max-position-embeddings",
              model.position == PositionKind::Learned ? model.positions : std::max(model.positions, tokens));
    if (!config.parallel.degrees.program().dropout) {
        lines.add("attention-dropout", 0);
        lines.add("hidden-dropout", 0);
    }
}

void add_precision(Lines& lines, const Config& config) {
    const Precision precision = config.training.precision;
    const Parallel& parallel = config.parallel.degrees;
    const std::string_view name = name_of(precision);
    if (precision == Precision::Tf32)
        config.fail_at("training.precision", fmt::format("{} has no argument for {}", kMegatron, name),
                       "write precision: bf16 or fp32");
    if (precision == Precision::Fp16 && parallel.expert > 1)
        config.fail_at("training.precision", fmt::format("{} divides no experts in {}", kMegatron, name),
                       "write precision: bf16, or parallel.expert: 1");
    if (precision == Precision::Fp32)
        return;
    lines.add(precision == Precision::Fp16 ? "fp16" : "bf16");
    if (precision == Precision::Fp8)
        lines.add("fp8-format", "hybrid");
    if (precision == Precision::Mxfp8) {
        lines.add("fp8-format", "e4m3");
        lines.add("fp8-recipe", "mxfp8");
    }
    if (precision == Precision::Nvfp4)
        lines.add("fp4-format", "e2m1");
    lines.add_if(precision != Precision::Fp16 && parallel.program().gradient < kFloatBytes, "grad-reduce-in-bf16");
}

void add_optimizer(Lines& lines, const Config& config) {
    const TrainingConfig& training = config.training;
    const Parallel& parallel = config.parallel.degrees;
    const bool adam = training.optimizer == OptimizerKind::AdamW;
    lines.add("optimizer", adam ? "adam" : "sgd");
    lines.add("lr", training.learning_rate);
    lines.add("weight-decay", training.weight_decay);
    lines.add("clip-grad", training.clip_norm);
    if (adam) {
        lines.add("adam-beta1", training.betas[0]);
        lines.add("adam-beta2", training.betas[1]);
        lines.add("adam-eps", training.epsilon);
    } else {
        lines.add("sgd-momentum", training.momentum);
    }
    if (parallel.zero == 0)
        return;
    if (!adam)
        config.fail_at("training.optimizer", fmt::format("{} divides the states of AdamW only", kMegatron),
                       "write optimizer: adamw, or parallel.zero: 0");
    lines.add("use-distributed-optimizer");
    if (parallel.zero > 1) {
        lines.add("use-megatron-fsdp");
        lines.add("data-parallel-sharding-strategy", parallel.zero == 2 ? "optim_grads" : "optim_grads_params");
        lines.add("ckpt-format", "fsdp_dtensor");
    }
    if (parallel.sharers() < parallel.replicas())
        lines.add("num-distributed-optimizer-instances", parallel.replicas() / parallel.sharers());
}

// Returns of how many blocks of a stage nothing is saved; the same for all stages.
int recomputed_blocks(const Job& job) {
    const double share = job.config.parallel.degrees.recomputed;
    const std::vector<int> blocks = blocks_by_stage(job);
    const double first = share * blocks.front();
    const bool equal = std::adjacent_find(blocks.begin(), blocks.end(), std::not_equal_to<>()) == blocks.end();
    if (!equal || std::abs(first - std::round(first)) > 1e-6)
        job.config.fail_at(
            "parallel.recompute",
            fmt::format("{} recomputes a whole number of blocks, the same in each stage, but a share of {} "
                        "of {} blocks is none",
                        kMegatron, share, blocks.front()),
            equal ? fmt::format("write a multiple of {:.6g}", 1.0 / blocks.front())
                  : "write share: 1, or stages with equally many blocks");
    return static_cast<int>(std::round(first));
}

void add_recomputing(Lines& lines, const Job& job) {
    const Parallel& parallel = job.config.parallel.degrees;
    const std::string_view name = name_of(parallel.recompute);
    if (parallel.recompute == RecomputeKind::None)
        return;
    if (parallel.recompute == RecomputeKind::Norms)
        job.config.fail_at("parallel.recompute",
                           fmt::format("{} recomputes norms, but no activations of a dense MLP", kMegatron),
                           "write recompute: none, selective or full");
    if (parallel.recompute == RecomputeKind::Selective) {
        if (parallel.recomputed < 1)
            job.config.fail_at("parallel.recompute",
                               fmt::format("{} recomputes kind: {} in all blocks or in none", kMegatron, name),
                               "write share: 1");
        return lines.add("recompute-activations");
    }
    const bool all = parallel.recomputed == 1;
    lines.add("recompute-granularity", "full");
    lines.add("recompute-method", all ? "uniform" : "block");
    lines.add("recompute-num-layers", all ? 1 : recomputed_blocks(job));
}

void add_expert_overlap(Lines& lines, const Job& job) {
    const Parallel& parallel = job.config.parallel.degrees;
    if (parallel.recompute == RecomputeKind::Full)
        job.config.fail_at("parallel.recompute",
                           fmt::format("{} recomputes no blocks while messages of experts overlap passes", kMegatron),
                           "write recompute: none or selective, or remove expert from parallel.overlap");
    if (parallel.pipeline > 1 && job.plan.shape.stages == parallel.pipeline)
        job.config.fail_at("parallel.overlap",
                           fmt::format("{} overlaps messages of experts in interleaved pipelines only", kMegatron),
                           "write schedule: interleaved, or remove expert");
    lines.add("overlap-moe-expert-parallel-comm");
}

void add_overlaps(Lines& lines, const Job& job) {
    const Parallel& parallel = job.config.parallel.degrees;
    const Overlap overlap = parallel.program().overlap;
    lines.add_if(overlap.data, "overlap-grad-reduce");
    lines.add_if(overlap.data && parallel.zero > 0, "overlap-param-gather");
    lines.add_if(overlap.tensor && parallel.sequence && parallel.tensor > 1, "tp-comm-overlap");
    if (overlap.expert && parallel.expert > 1)
        add_expert_overlap(lines, job);
}

}  // namespace

TrainingArguments megatron_arguments(const Job& job) {
    const Config& config = job.config;
    const Parallel& parallel = config.parallel.degrees;
    Lines lines;
    add_degrees(lines, job);
    add_pipeline(lines, job);
    lines.add("micro-batch-size", config.pipeline.micro_batch_size);
    lines.add("global-batch-size", global_batch(config));
    add_model(lines, config);
    add_precision(lines, config);
    add_optimizer(lines, config);
    add_recomputing(lines, job);
    add_overlaps(lines, job);
    TrainingArguments result{std::move(lines.text), {ranks_of(config)}};
    if (parallel.zero > 1)
        result.notes.emplace_back("leave CUDA_DEVICE_MAX_CONNECTIONS unset, or larger than 1");
    else if (parallel.tensor > 1 || parallel.context > 1)
        result.notes.emplace_back("set CUDA_DEVICE_MAX_CONNECTIONS=1; Blackwell needs no limit");
    result.notes.emplace_back("add the data, the tokenizer, --train-iters and how the learning rate changes");
    return result;
}

}  // namespace pw

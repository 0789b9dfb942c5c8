// Arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py, core 0.15 and 0.16).
#include "report/layouts.h"
#include "report/megatron_experts.h"
#include "report/megatron_recompute.h"
#include "report/megatron_types.h"
#include "report/training_programs.h"
#include "schedules/orders/chunk_groups.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace megatron {

namespace {

constexpr std::string_view kMegatron = "Megatron-LM";

// An argument without a value.
ArgumentText switched_on_if(bool has) { return written_if(has, ""); }

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

template <class Has>
bool in_all_layers(const Transformer& model, Has has) {
    for (int layer = 0; layer < model.layers; ++layer)
        if (!has(layer))
            return false;
    return true;
}

std::optional<Refusal> refused_tensor(const ExportedPlan& plan) {
    const int tensor = plan.parallel.tensor, heads = plan.model.key_value_heads;
    if (plan.model.latent || heads % tensor == 0 || tensor % heads == 0)
        return std::nullopt;
    return Refusal{"parallel.tensor",
                   fmt::format("{} takes a divisor or a multiple of the {} heads of keys and values, not {}", kMegatron,
                               heads, tensor),
                   "write such a degree"};
}

std::optional<Refusal> refused_sequence(const ExportedPlan& plan) {
    if (!plan.model.experts || plan.parallel.tensor == 1 || plan.parallel.sequence)
        return std::nullopt;
    return Refusal{
        "parallel.sequence",
        fmt::format("{} trains experts with tensor parallelism only if it has sequence parallelism, too", kMegatron),
        "remove the key, or write parallel.tensor: 1"};
}

std::optional<Refusal> refused_context(const ExportedPlan& plan) {
    const int context = plan.parallel.context;
    if (context == 1 || plan.tokens % (2 * context) == 0)
        return std::nullopt;
    return Refusal{"parallel.context",
                   fmt::format("{} cuts a sequence into 2 x {} parts, which do not divide its {} tokens", kMegatron,
                               context, plan.tokens),
                   "write a smaller degree"};
}

bool interleaves(const ExportedPlan& plan) { return !plan.alternates && plan.schedule->chunks > 1; }

int group_of(const ExportedPlan& plan) {
    Shape shape;
    shape.devices = plan.parallel.pipeline;
    shape.stages = plan.stages();
    shape.microbatches = plan.pipeline.micro_batches;
    return group_size(shape, {.group = plan.pipeline.options.group});
}

std::optional<Refusal> refused_pipeline(const ExportedPlan& plan) {
    const bool has_schedule = plan.schedule != nullptr && plan.schedule->elsewhere.megatron;
    const bool has_stages = plan.alternates || !has_schedule || plan.schedule->chunks == 1 ||
                            (plan.parallel.pipeline > 1 && plan.chunks() > 1);
    if (has_stages && (plan.alternates || has_schedule))
        return std::nullopt;
    return refused_schedule(plan, kMegatron, [](const OtherPrograms& programs) { return programs.megatron; });
}

std::optional<Refusal> refused_group(const ExportedPlan& plan) {
    if (!interleaves(plan))
        return std::nullopt;
    const int devices = plan.parallel.pipeline, micro_batches = plan.pipeline.micro_batches, group = group_of(plan);
    const int last = micro_batches % group;
    if (group >= devices && (last == 0 || last >= devices))
        return std::nullopt;
    return Refusal{"pipeline.micro_batches",
                   fmt::format("{} interleaves groups of at least {} micro-batches, but {} are in groups of {}",
                               kMegatron, devices, micro_batches, group),
                   fmt::format("write a multiple of {}", devices)};
}

std::optional<Refusal> refused_messages(const ExportedPlan& plan) {
    if (!interleaves(plan) || plan.release.overlap.pipeline || plan.parallel.pipeline > 2)
        return std::nullopt;
    return Refusal{"parallel.overlap",
                   "on two ranks Megatron-LM interleaves stages only if their messages overlap passes",
                   "add pipeline to parallel.overlap, or write schedule: 1f1b"};
}

std::string layout_of(const Job& job) { return megatron_layout(job.setup.workload, job.model->layers, job.split); }

std::optional<Refusal> refused_layout(const ExportedPlan& plan) {
    if (plan.job == nullptr || has_equal_stages(*plan.job) || !layout_of(*plan.job).empty())
        return std::nullopt;
    return Refusal{"pipeline.split", "Megatron-LM takes stages that are ranges of whole blocks",
                   "remove the key, or cut between blocks"};
}

std::optional<Refusal> refused_layers(const ExportedPlan& plan) {
    const Transformer& model = plan.model;
    const char* has = model.mamba         ? "layers with Mamba-2"
                      : model.post_norms  ? "norms after attention and MLP"
                      : model.parallel    ? "attention and MLP with the same input"
                      : model.caps_logits ? "a cap of logits"
                                          : nullptr;
    if (has == nullptr)
        return std::nullopt;
    return Refusal{"workload.model",
                   fmt::format("pretrain_gpt.py of {} has no {}, which {} has", kMegatron, has, model.name),
                   "name a model without them"};
}

std::optional<Refusal> refused_position(const ExportedPlan& plan) {
    if (plan.model.position != PositionKind::Alibi)
        return std::nullopt;
    return Refusal{"workload.model", fmt::format("{} has no ALiBi positions, which {} has", kMegatron, plan.model.name),
                   "name a model with learned or rotary positions"};
}

std::optional<Refusal> refused_norm(const ExportedPlan& plan) {
    if (plan.model.norm != NormKind::BareLayerNorm)
        return std::nullopt;
    return Refusal{"workload.model",
                   fmt::format("{} has no LayerNorm without a bias, which {} has", kMegatron, plan.model.name),
                   "name a model with another norm"};
}

std::optional<Refusal> refused_precision(const ExportedPlan& plan) {
    const Precision precision = plan.training.precision;
    if (precision == Precision::Tf32)
        return Refusal{"training.precision", fmt::format("{} has no argument for {}", kMegatron, name_of(precision)),
                       "write precision: bf16 or fp32"};
    if (precision == Precision::Fp16 && plan.parallel.expert > 1)
        return Refusal{"training.precision", fmt::format("{} divides no experts in {}", kMegatron, name_of(precision)),
                       "write precision: bf16, or parallel.expert: 1"};
    return std::nullopt;
}

const OptimizerFacts& optimizer_of(const ExportedPlan& plan) { return facts_of(plan.training.optimizer); }

std::optional<Refusal> refused_optimizer(const ExportedPlan& plan) {
    if (plan.parallel.zero == 0 || plan.training.optimizer == OptimizerKind::AdamW)
        return refused_optimizer_of(plan, kMegatron, &OptimizerNames::megatron);
    return Refusal{"training.optimizer",
                   fmt::format("{} divides the states of {} only", kMegatron, name_of(OptimizerKind::AdamW)),
                   "write optimizer: adamw, or parallel.zero: 0"};
}

constexpr std::string_view kAttentionBackends[] = {"flash", "fused", "unfused"};  // by AttentionKernels

// In the order of the text.
constexpr ArgumentRow kRows[] = {
    {"--tensor-model-parallel-size", [](const ExportedPlan& plan) { return written(plan.parallel.tensor); },
     refused_tensor},
    {"--sequence-parallel",
     [](const ExportedPlan& plan) { return switched_on_if(plan.parallel.sequence && plan.parallel.tensor > 1); },
     refused_sequence},
    {"--pipeline-model-parallel-size", [](const ExportedPlan& plan) { return written(plan.parallel.pipeline); },
     refused_pipeline},
    {"--context-parallel-size", [](const ExportedPlan& plan) { return written(plan.parallel.context); },
     refused_context},
    {"--expert-model-parallel-size",
     [](const ExportedPlan& plan) { return written_if(plan.model.experts.has_value(), plan.parallel.expert); }},
    {"--expert-tensor-parallel-size",
     [](const ExportedPlan& plan) { return written_if(plan.model.experts.has_value(), plan.parallel.expert_tensor); },
     refused_expert_tensor},
    {"--microbatch-group-size-per-virtual-pipeline-stage",
     [](const ExportedPlan& plan) -> ArgumentText {
         return interleaves(plan) ? written_if(group_of(plan) != plan.parallel.pipeline, group_of(plan)) : std::nullopt;
     },
     refused_group},
    {"--no-overlap-p2p-communication",
     [](const ExportedPlan& plan) { return switched_on_if(interleaves(plan) && !plan.release.overlap.pipeline); },
     refused_messages},
    {"--num-layers-per-virtual-pipeline-stage",
     [](const ExportedPlan& plan) {
         return written_if(has_equal_stages(*plan.job) && plan.chunks() > 1, blocks_by_stage(*plan.job).front());
     }},
    {"--pipeline-model-parallel-layout",
     [](const ExportedPlan& plan) { return written_if(!has_equal_stages(*plan.job), layout_of(*plan.job)); },
     refused_layout},
    {"--micro-batch-size", [](const ExportedPlan& plan) { return written(plan.pipeline.micro_batch_size); }},
    {"--global-batch-size", [](const ExportedPlan& plan) { return written(plan.global_batch()); }},
    {"--num-layers", [](const ExportedPlan& plan) { return written(plan.model.layers); }, refused_layers},
    {"--mtp-num-layers", [](const ExportedPlan& plan) { return written_if(plan.model.mtp > 0, plan.model.mtp); }},
    {"--hidden-size", [](const ExportedPlan& plan) { return written(plan.model.hidden); }},
    {"--ffn-hidden-size", [](const ExportedPlan& plan) { return written(plan.model.ffn); }},
    {"--num-attention-heads", [](const ExportedPlan& plan) { return written(plan.model.heads); }},
    {"--multi-latent-attention",
     [](const ExportedPlan& plan) { return switched_on_if(plan.model.latent.has_value()); }},
    {"--q-lora-rank",
     [](const ExportedPlan& plan) {
         const int rank = plan.model.latent ? plan.model.latent->query_rank : 0;
         return written_if(rank > 0, rank);
     }},
    {"--kv-lora-rank",
     [](const ExportedPlan& plan) {
         return plan.model.latent ? written(plan.model.latent->key_value_rank) : std::nullopt;
     }},
    {"--qk-head-dim",
     [](const ExportedPlan& plan) {
         return plan.model.latent ? written(plan.model.latent->plain_width) : std::nullopt;
     }},
    {"--qk-pos-emb-head-dim",
     [](const ExportedPlan& plan) {
         return plan.model.latent ? written(plan.model.latent->rotary_width) : std::nullopt;
     }},
    {"--v-head-dim",
     [](const ExportedPlan& plan) {
         return plan.model.latent ? written(plan.model.latent->value_width) : std::nullopt;
     }},
    {"--group-query-attention",
     [](const ExportedPlan& plan) {
         return switched_on_if(!plan.model.latent && plan.model.key_value_heads != plan.model.heads);
     }},
    {"--num-query-groups",
     [](const ExportedPlan& plan) {
         return written_if(!plan.model.latent && plan.model.key_value_heads != plan.model.heads,
                           plan.model.key_value_heads);
     }},
    {"--kv-channels", [](const ExportedPlan& plan) { return written_if(!plan.model.latent, plan.model.head_width); }},
    {"--qk-layernorm", [](const ExportedPlan& plan) { return switched_on_if(plan.model.normed_heads); }},
    {"--window-size",
     [](const ExportedPlan& plan) {
         return written_if(plan.model.window > 0, fmt::format("{},0", plan.model.window));
     }},
    {"--window-attn-skip-freq",
     [](const ExportedPlan& plan) {
         const auto has = [&](int layer) { return plan.model.has_window(layer); };
         return written_if(plan.model.window > 0 && !in_all_layers(plan.model, has), runs_of_layers(plan.model, has));
     }},
    {"--position-embedding-type",
     [](const ExportedPlan& plan) {
         return written(plan.model.position == PositionKind::Rotary ? "rope" : "learned_absolute");
     },
     refused_position},
    {"--attention-backend",
     [](const ExportedPlan& plan) {
         return written(kAttentionBackends[static_cast<std::size_t>(plan.release.attention)]);
     }},
    {"--num-experts",
     [](const ExportedPlan& plan) { return plan.model.experts ? written(plan.model.experts->count) : std::nullopt; }},
    {"--moe-router-topk",
     [](const ExportedPlan& plan) { return plan.model.experts ? written(plan.model.experts->active) : std::nullopt; }},
    {"--moe-router-pre-softmax",
     [](const ExportedPlan& plan) { return switched_on_if(plan.model.experts && plan.model.experts->active == 1); }},
    {"--moe-ffn-hidden-size",
     [](const ExportedPlan& plan) { return plan.model.experts ? written(plan.model.experts->width) : std::nullopt; }},
    {"--moe-latent-size",
     [](const ExportedPlan& plan) {
         const int width = plan.model.experts ? plan.model.experts->latent : 0;
         return written_if(width > 0, width);
     }},
    {"--moe-shared-expert-intermediate-size",
     [](const ExportedPlan& plan) {
         const int width = plan.model.experts ? plan.model.experts->shared_width : 0;
         return written_if(width > 0, width);
     }},
    {"--moe-layer-freq",
     [](const ExportedPlan& plan) {
         const auto has = [&](int layer) { return plan.model.has_experts(layer); };
         return written_if(plan.model.experts && !in_all_layers(plan.model, has), runs_of_layers(plan.model, has));
     }},
    {"--moe-grouped-gemm",
     [](const ExportedPlan& plan) {
         return switched_on_if(plan.model.experts && plan.release.experts == ExpertKernels::Grouped);
     }},
    {"--moe-token-dispatcher-type",
     [](const ExportedPlan& plan) { return written_if(plan.model.experts.has_value(), dispatcher_of(plan)); },
     refused_dispatcher},
    {"--moe-enable-deepep",
     [](const ExportedPlan& plan) { return switched_on_if(plan.model.experts && sends_once(plan)); }},
    {"--normalization",
     [](const ExportedPlan& plan) { return written(plan.model.norm == NormKind::RmsNorm ? "RMSNorm" : "LayerNorm"); },
     refused_norm},
    {"--swiglu", [](const ExportedPlan& plan) { return switched_on_if(plan.model.gated); }},
    {"--disable-bias-linear", [](const ExportedPlan& plan) { return switched_on_if(!plan.model.bias); }},
    {"--add-qkv-bias",
     [](const ExportedPlan& plan) { return switched_on_if(!plan.model.bias && plan.model.attention_bias); }},
    {"--untie-embeddings-and-output-weights",
     [](const ExportedPlan& plan) { return switched_on_if(!plan.model.tied); }},
    {"--vocab-size", [](const ExportedPlan& plan) { return written(plan.model.vocabulary); }},
    {"--make-vocab-size-divisible-by",  // as in TransformerLayers::vocabulary_part()
     [](const ExportedPlan&) { return written(128); }},
    {"--seq-length", [](const ExportedPlan& plan) { return written(plan.tokens); }},
    {"--max-position-embeddings",
     [](const ExportedPlan& plan) {
         return written(plan.model.position == PositionKind::Learned ? plan.model.positions
                                                                     : std::max(plan.model.positions, plan.tokens));
     }},
    {"--attention-dropout", [](const ExportedPlan& plan) { return written_if(!plan.release.dropout, 0); }},
    {"--hidden-dropout", [](const ExportedPlan& plan) { return written_if(!plan.release.dropout, 0); }},
    {"--fp16", [](const ExportedPlan& plan) { return switched_on_if(plan.training.precision == Precision::Fp16); },
     refused_precision},
    {"--bf16",
     [](const ExportedPlan& plan) {
         return switched_on_if(plan.training.precision != Precision::Fp16 &&
                               plan.training.precision != Precision::Fp32);
     }},
    {"--fp8-format",
     [](const ExportedPlan& plan) {
         const bool is_mx = plan.training.precision == Precision::Mxfp8;
         return written_if(is_mx || plan.training.precision == Precision::Fp8, is_mx ? "e4m3" : "hybrid");
     }},
    {"--fp8-recipe",
     [](const ExportedPlan& plan) { return written_if(plan.training.precision == Precision::Mxfp8, "mxfp8"); }},
    {"--fp4-format",
     [](const ExportedPlan& plan) { return written_if(plan.training.precision == Precision::Nvfp4, "e2m1"); }},
    {"--grad-reduce-in-bf16",
     [](const ExportedPlan& plan) {
         return switched_on_if(plan.training.precision != Precision::Fp16 &&
                               plan.training.precision != Precision::Fp32 && plan.kept.gradient < kFloatBytes);
     }},
    {"--optimizer", [](const ExportedPlan& plan) { return written(optimizer_of(plan).names.megatron); },
     refused_optimizer},
    {"--fp8-param-gather",
     [](const ExportedPlan& plan) { return switched_on_if(plan.types.weights == NumberType::Fp8); }},
    {"--use-precision-aware-optimizer", [](const ExportedPlan& plan) { return switched_on_if(knows_types(plan)); },
     refused_types_of_states},
    {"--main-grads-dtype",
     [](const ExportedPlan& plan) {
         return written_if(knows_types(plan) && plan.kept.gradient < kFloatBytes, name_of(NumberType::Bf16));
     }},
    {"--main-params-dtype",
     [](const ExportedPlan& plan) {
         return written_if(plan.types.master == MasterType::Fp16, name_of(MasterType::Fp16));
     }},
    {"--exp-avg-dtype", [](const ExportedPlan& plan) { return type_of_state(plan, plan.types.momentum); }},
    {"--exp-avg-sq-dtype", [](const ExportedPlan& plan) { return type_of_state(plan, plan.types.variance); }},
    {"--lr", [](const ExportedPlan& plan) { return written(plan.training.learning_rate); }, nullptr,
     "training.learning_rate"},
    {"--weight-decay", [](const ExportedPlan& plan) { return written(plan.training.weight_decay); }, nullptr,
     "training.weight_decay"},
    {"--clip-grad", [](const ExportedPlan& plan) { return written(plan.training.clip_norm); }, nullptr,
     "training.clip_norm"},
    {"--adam-beta1",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_averages, plan.training.betas[0]); },
     nullptr, "training.betas"},
    {"--adam-beta2",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_averages, plan.training.betas[1]); },
     nullptr, "training.betas"},
    {"--adam-eps",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_averages, plan.training.epsilon); },
     nullptr, "training.epsilon"},
    {"--sgd-momentum",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_momentum, plan.training.momentum); },
     nullptr, "training.momentum"},
    {"--use-distributed-optimizer", [](const ExportedPlan& plan) { return switched_on_if(plan.parallel.zero > 0); }},
    {"--use-megatron-fsdp", [](const ExportedPlan& plan) { return switched_on_if(plan.parallel.zero > 1); }},
    {"--data-parallel-sharding-strategy",
     [](const ExportedPlan& plan) {
         return written_if(plan.parallel.zero > 1, plan.parallel.zero == 2 ? "optim_grads" : "optim_grads_params");
     }},
    {"--ckpt-format", [](const ExportedPlan& plan) { return written_if(plan.parallel.zero > 1, "fsdp_dtensor"); }},
    {"--num-distributed-optimizer-instances",
     [](const ExportedPlan& plan) {
         const int sharers = plan.parallel.sharers(), replicas = plan.parallel.replicas();
         return written_if(plan.parallel.zero > 0 && sharers < replicas, replicas / sharers);
     }},
    {"--recompute-activations",
     [](const ExportedPlan& plan) {
         return switched_on_if(plan.parallel.recompute == set_of(BlockModule::CoreAttention));
     },
     refused_recompute},
    {"--recompute-granularity", recompute_granularity},
    {"--recompute-modules", recomputed_modules},
    {"--recompute-method", recompute_method, refused_blocks},
    {"--recompute-num-layers", recomputed_layers},
    {"--overlap-grad-reduce", [](const ExportedPlan& plan) { return switched_on_if(plan.release.overlap.data); }},
    {"--overlap-param-gather",
     [](const ExportedPlan& plan) { return switched_on_if(plan.release.overlap.data && plan.parallel.zero > 0); }},
    {"--tp-comm-overlap",
     [](const ExportedPlan& plan) {
         return switched_on_if(plan.release.overlap.tensor && plan.parallel.sequence && plan.parallel.tensor > 1);
     }},
    {"--overlap-moe-expert-parallel-comm",
     [](const ExportedPlan& plan) { return switched_on_if(overlaps_experts(plan)); }, refused_expert_overlap},
};

// Returns an argument per line.
std::string lines_of(const std::vector<Argument>& arguments) {
    std::string text;
    for (const Argument& argument : arguments)
        text += fmt::format("{}{}{}\n", argument.name, argument.value.empty() ? "" : " ", argument.value);
    return text;
}

Notices notes_of(const ExportedPlan& plan) {
    Notices notes;
    if (plan.parallel.zero > 1)
        notes.emplace_back("leave CUDA_DEVICE_MAX_CONNECTIONS unset, or larger than 1");
    else if (plan.parallel.tensor > 1 || plan.parallel.context > 1)
        notes.emplace_back("set CUDA_DEVICE_MAX_CONNECTIONS=1; Blackwell needs no limit");
    notes.emplace_back("add the data, the tokenizer, --train-iters and how the learning rate changes");
    return notes;
}

}  // namespace

}  // namespace megatron

ProgramTable megatron_table() { return {megatron::kRows, megatron::lines_of, megatron::notes_of}; }

}  // namespace pw

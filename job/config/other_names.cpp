#include "job/config/other_names.h"

#include "job/config/blocks.h"

#include <algorithm>

namespace pw {
namespace {

constexpr std::string_view kReplicas = "remove the key: the replicas follow, devices / (tensor x pipeline x context)";

constexpr OtherName kOtherNames[] = {
    // data parallelism of transformers
    {"data", "parallel", kReplicas},
    {"dp", "parallel", kReplicas},
    {"dp_size", "parallel", kReplicas},
    {"data_parallel_size", "parallel", kReplicas},
    {"data_parallel_degree", "parallel", kReplicas},
    {"data_parallel_replicate_degree", "parallel", kReplicas},
    {"replicas", "parallel", kReplicas},
    // models: Hugging Face and Megatron
    {"hidden_size", "workload.embedding"},
    {"n_embd", "workload.embedding"},
    {"d_model", "workload.embedding"},
    {"embedding_dim", "workload.embedding"},
    {"width", "workload.embedding"},
    {"layers", "workload.blocks"},
    {"depth", "workload.blocks"},
    {"num_layers", "workload.blocks"},
    {"num_hidden_layers", "workload.blocks"},
    {"n_layer", "workload.blocks"},
    {"n_layers", "workload.blocks"},
    {"num_attention_heads", "workload.heads"},
    {"num_heads", "workload.heads"},
    {"n_head", "workload.heads"},
    {"n_heads", "workload.heads"},
    {"num_key_value_heads", "workload.key_value_heads"},
    {"intermediate_size", "workload.inner"},
    {"num_nextn_predict_layers", "workload.mtp_layers"},
    {"mtp_num_layers", "workload.mtp_layers"},
    {"rope_theta", "workload.rotary_base"},
    {"seq_length", "workload.sequence_length"},
    {"seq_len", "workload.sequence_length"},
    {"max_position_embeddings", "workload.sequence_length"},
    {"vocab_size", "workload.vocabulary"},
    {"num_classes", "workload.classes"},
    {"model_name", "workload.model"},
    // devices
    {"gpus", "cluster.devices"},
    {"num_gpus", "cluster.devices"},
    {"world_size", "cluster.devices"},
    {"num_devices", "cluster.devices"},
    {"gpus_per_node", "cluster.devices_per_host"},
    {"nproc_per_node", "cluster.devices_per_host"},
    {"nnodes", "cluster.hosts"},
    {"nodes", "cluster.hosts"},
    {"num_nodes", "cluster.hosts"},
    {"flops", "cluster.compute"},
    {"device_memory", "cluster.memory"},
    // pipelines: Megatron, DeepSpeed, PyTorch, GPipe, Galvatron
    {"num_microbatches", "pipeline.micro_batches"},
    {"num_micro_batches", "pipeline.micro_batches"},
    {"n_microbatches", "pipeline.micro_batches"},
    {"microbatches", "pipeline.micro_batches"},
    {"gradient_accumulation_steps", "pipeline.micro_batches"},
    {"chunks", "pipeline.micro_batches"},
    {"microbatch_size", "pipeline.micro_batch_size"},
    {"mbs", "pipeline.micro_batch_size"},
    {"train_micro_batch_size_per_gpu", "pipeline.micro_batch_size"},
    {"global_batch_size", "pipeline.mini_batch"},
    {"train_batch_size", "pipeline.mini_batch"},
    {"batch_size", "pipeline.mini_batch"},
    {"gbs", "pipeline.mini_batch"},
    {"global_bsz", "pipeline.mini_batch"},
    {"pipeline_model_parallel_size", "pipeline.stages"},
    {"pipeline_parallel_size", "pipeline.stages"},
    {"pipeline_parallel_degree", "pipeline.stages"},
    {"num_stages", "pipeline.stages"},
    {"pp", "pipeline.stages"},
    {"pp_size", "pipeline.stages"},
    {"pp_deg", "pipeline.stages"},
    {"pp_schedule", "pipeline.schedule"},
    {"pipeline_parallel_schedule", "pipeline.schedule"},
    {"pipeline_type", "pipeline.schedule"},
    {"pipeline_model_parallel_layout", "pipeline.split"},
    {"decoder_pipeline_manual_split_list", "pipeline.split"},
    {"module_fqns_per_model_part", "pipeline.split"},
    {"split_points", "pipeline.split"},
    {"split_spec", "pipeline.split"},
    {"pp_division", "pipeline.split"},
    {"data_parallel_size", "pipeline.replicas"},
    {"data_parallel_replicate_degree", "pipeline.replicas"},
    {"dp", "pipeline.replicas"},
    {"dp_size", "pipeline.replicas"},
    {"microbatch_group_size_per_vp_stage", "pipeline.group"},
    {"overlap_moe_expert_parallel_comm", "pipeline.pairs"},
    {"tensor_model_parallel_size", "parallel.tensor"},
    {"tensor_parallel_degree", "parallel.tensor"},
    {"tp", "parallel.tensor"},
    {"tp_size", "parallel.tensor"},
    {"context_parallel_size", "parallel.context"},
    {"context_parallel_degree", "parallel.context"},
    {"cp", "parallel.context"},
    {"expert_model_parallel_size", "parallel.expert"},
    {"expert_parallel_degree", "parallel.expert"},
    {"ep", "parallel.expert"},
    {"expert_tensor_parallel_size", "parallel.expert_tensor"},
    {"expert_tensor_parallel_degree", "parallel.expert_tensor"},
    {"etp", "parallel.expert_tensor"},
    {"moe_token_dispatcher_type", "parallel.expert_dispatcher"},
    {"moe_enable_deepep", "parallel.expert_dispatcher"},
    {"moe_flex_dispatcher_backend", "parallel.expert_dispatcher"},
    {"expert_parallel_comm_backend", "parallel.expert_dispatcher"},
    {"sequence_parallel", "parallel.sequence"},
    {"recompute_granularity", "parallel.recompute"},
    {"recompute_method", "parallel.recompute"},
    {"recompute_num_layers", "parallel.recompute"},
    {"recompute_modules", "parallel.recompute"},
    {"selective_ac_option", "parallel.recompute"},
    {"activation_checkpoint", "parallel.recompute"},
    {"activation_checkpointing", "pipeline.recompute"},
    {"num_microbatches_with_partial_activation_checkpoints", "pipeline.recompute_saved"},
    // training
    {"lr", "training.learning_rate"},
    {"adam", "training.optimizer"},
    {"adamw", "training.optimizer"},
    {"train_iters", "training.steps"},
    {"max_steps", "training.steps"},
    {"num_steps", "training.steps"},
    {"clip_grad", "training.clip_norm"},
    {"gradient_clipping", "training.clip_norm"},
    {"max_grad_norm", "training.clip_norm"},
    {"adam_beta1", "training.betas"},
    {"adam_beta2", "training.betas"},
    {"adam_eps", "training.epsilon"},
    {"eps", "training.epsilon"},
    {"use_distributed_optimizer", "training.zero"},
    {"zero_stage", "training.zero"},
    {"main_grads_dtype", "training.gradient_type"},
    {"main_params_dtype", "training.master_type"},
    {"exp_avg_dtype", "training.momentum_type"},
    {"exp_avg_sq_dtype", "training.variance_type"},
    {"bucket_cap_mb", "transfer.sum_bucket"},
    {"dtype", "training.precision"},
    {"distributed_backend", "run.transport"},
    // keys that are in several blocks
    {"stages", "pipeline.stages"},
};

}  // namespace

std::span<const OtherName> other_names() {
    struct Table {
        std::deque<std::string> paths;
        std::vector<OtherName> names{std::begin(kOtherNames), std::end(kOtherNames)};
    };
    static const Table table = [] {
        Table made;
        const auto is_block = [](std::string_view name) {
            return std::ranges::count(config_blocks(), name, &ConfigBlock::name) > 0;
        };
        for (const ConfigBlock& block : config_blocks())
            for (const ConfigKey& key : block.keys)
                if (!key.help.empty() && !is_block(key.name) &&
                    std::ranges::count(made.names, key.name, &OtherName::name) == 0)
                    made.names.push_back(
                        {key.name, made.paths.emplace_back(fmt::format("{}.{}", block.name, key.name))});
        return made;
    }();
    return table.names;
}

}  // namespace pw

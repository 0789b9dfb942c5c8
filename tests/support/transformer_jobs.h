// Transformers in training on a host of eight devices, for tests of their costs.
#pragma once

#include "workloads/cluster/named_links.h"
#include "workloads/transformers/layer_costs.h"
#include "workloads/transformers/parallel.h"

#include <string_view>

namespace pw {

// Returns a job in bf16 on eight devices of this kind, which the named link joins. The model and the degrees are the
// test's.
inline TransformerJob job_on_host(std::string_view device, std::string_view link) {
    TransformerJob job;
    job.optimizer = OptimizerKind::AdamW;
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    job.device = *find_device_kind(kinds, device);
    job.flops = product_rate(job.device, Precision::Bf16)->flops;
    job.products = product_rates(job.device, Precision::Bf16);
    job.fabric.inside_name = link;
    job.fabric.inside = find_named_link(link)->link;
    job.fabric.domain = job.fabric.per_host = 8;
    return job;
}

// Returns a job of "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198).
inline TransformerJob gpt_job(int hidden, int heads, int layers, int tensor, int pipeline) {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model.name = "gpt";
    job.model.hidden = hidden;
    job.model.layers = layers;
    job.model.heads = job.model.key_value_heads = heads;
    job.model.head_width = hidden / heads;
    job.model.ffn = 4 * hidden;
    job.model.vocabulary = 51'200;
    job.model.positions = 2048;
    job.model.bias = job.model.tied = true;
    job.tokens = 2048;
    job.parallel.tensor = tensor;
    job.parallel.pipeline = pipeline;
    job.parallel.release = Release::Megatron2022;
    return job;
}

inline TransformerLayerCost cost_of_block(const TransformerJob& job, int sequences) {
    return TransformerLayers(job).all(sequences)[1];
}

}  // namespace pw

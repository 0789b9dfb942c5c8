// Transformers in training on a host of eight devices, for tests of their costs.
#pragma once

#include "workloads/cluster/named_links.h"
#include "workloads/transformers/parallel.h"

#include <string_view>

namespace pw {

// Returns a job in bf16 on eight devices of this kind, which the named link joins. The model and the degrees are the
// test's.
inline TransformerJob job_on_host(std::string_view device, std::string_view link) {
    TransformerJob job;
    job.optimizer = OptimizerKind::AdamW;
    const std::vector<DeviceKindFacts> kinds = device_kinds();
    job.device = *find_device_kind(kinds, device);
    job.flops = product_rate(job.device, Precision::Bf16)->flops;
    job.products = product_rates(job.device, Precision::Bf16);
    job.fabric.inside_name = link;
    job.fabric.inside = find_named_link(link)->link;
    job.fabric.domain = job.fabric.per_host = 8;
    return job;
}

}  // namespace pw

// A search for a cluster that takes little time.
#pragma once

namespace pw {

// Two hosts of four devices, with less memory than many plans need.
inline constexpr const char* kSmall = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 24 GB, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2], chunks: [1, 2, 4], schedules: [1f1b, interleaved, zb-h1],
         unequal_blocks: false}
)";

}  // namespace pw

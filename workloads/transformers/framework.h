// What training programs do on their own: which messages they send while they compute, and which kernels they have.
// The same plan of the same model differs by 20 % between releases.
#pragma once

#include "workloads/costs/attention.h"
#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <cstdint>

namespace pw {

enum class Release : std::uint8_t {
    Megatron2021,
    DeepSpeed2022,
    Megatron2022,
    NeMo2023,
    NeMo2024,
    NeMo2025,
    TorchTitan,
    TorchTitanCompiled,
    Fsdp2023
};
template <>
inline constexpr Choice<Release> kChoices<Release>[] = {
    {"megatron-2021", Release::Megatron2021}, {"deepspeed-2022", Release::DeepSpeed2022},
    {"megatron-2022", Release::Megatron2022}, {"nemo-2023", Release::NeMo2023},
    {"nemo-2024", Release::NeMo2024},         {"nemo-2025", Release::NeMo2025},
    {"torchtitan", Release::TorchTitan},      {"torchtitan-compiled", Release::TorchTitanCompiled},
    {"fsdp-2023", Release::Fsdp2023}};

struct ReleaseFacts {
    Release release;
    AttentionKernels attention;
    // All-reduces and reduce-scatters of tensor parallelism in the backward overlap the gradients of weights.
    bool overlaps_tensor_backward;
    // All-gathers and reduce-scatters of tensor parallelism overlap the products that they belong to, in pieces.
    bool overlaps_tensor;
    // Sums of gradients overlap the last backward; gathers of weights overlap the first forward.
    bool overlaps_data;
    bool overlaps_pipeline;  // messages between stages of interleaved schedules overlap passes
    bool overlaps_expert;    // all-to-alls of one micro-batch overlap the passes of another
    bool fuses;              // norms, activations and residual sums are one kernel each, and the loss is
    bool dropout;            // values are dropped (masks are saved)
    Bytes gradient;          // bytes of a number in sums of gradients
    double host;             // seconds in which the host launches a kernel
};
const ReleaseFacts& facts_of(Release release);

}  // namespace pw

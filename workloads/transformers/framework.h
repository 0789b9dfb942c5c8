// What training programs do on their own: which messages they send while they compute, and which kernels they have.
// The same plan of the same model differs by 20 % between releases.
#pragma once

#include "workloads/costs/attention.h"
#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <cstdint>
#include <optional>

namespace pw {

// The programs that train transformers and take a plan as their arguments (report/training_arguments.h).
enum class Program : std::uint8_t { MegatronLm, TorchTitan, DeepSpeed };
template <>
inline constexpr Choice<Program> kChoices<Program>[] = {
    {"megatron-lm", Program::MegatronLm}, {"torchtitan", Program::TorchTitan}, {"deepspeed", Program::DeepSpeed}};

enum class Release : std::uint8_t {
    Megatron2021,
    DeepSpeed2022,
    Megatron2022,
    NeMo2023,
    NeMo2024,
    NeMo2025,
    TorchTitan,
    TorchTitanCompiled,
    Fsdp2023,
    Scaling2023,
    Megatron2023,
    Paddle2023
};
template <>
inline constexpr Choice<Release> kChoices<Release>[] = {
    {"megatron-2021", Release::Megatron2021}, {"deepspeed-2022", Release::DeepSpeed2022},
    {"megatron-2022", Release::Megatron2022}, {"nemo-2023", Release::NeMo2023},
    {"nemo-2024", Release::NeMo2024},         {"nemo-2025", Release::NeMo2025},
    {"torchtitan", Release::TorchTitan},      {"torchtitan-compiled", Release::TorchTitanCompiled},
    {"fsdp-2023", Release::Fsdp2023},         {"scaling-2023", Release::Scaling2023},
    {"megatron-2023", Release::Megatron2023}, {"paddle-2023", Release::Paddle2023}};

// What is sent while a pass computes.
struct Overlap {
    // All-gathers and reduce-scatters of tensor parallelism overlap the products that they belong to, in pieces.
    bool tensor = false;
    // All-gathers and reduce-scatters of the backward overlap the gradients of weights.
    bool tensor_backward = false;
    bool data = false;      // sums of gradients overlap the last backward, gathers of weights the first forward
    bool pipeline = false;  // messages between stages of interleaved schedules overlap passes
    bool expert = false;    // all-to-alls of one micro-batch overlap the passes of another
    bool operator==(const Overlap&) const = default;
};

// What the loss moves and keeps, in bytes for each logit. With a kernel for each step, logits become fp32 and are read
// for maximum and sum, the difference and its exponential are written.
struct LossBytes {
    double forward, backward;  // moved
    double saved, scratch;     // from the forward to the backward, and during the latter
};
// Megatron-LM works in place (megatron/core/tensor_parallel/cross_entropy.py at 00611e6). The forward makes logits
// fp32 (6 bytes), takes their maximum (4), subtracts it (8), takes exponentials (8), sums (4) and divides (8). The
// backward scales the probabilities (8) and makes the gradient bf16 (6). Logits in bf16 and probabilities in fp32 are
// saved, the gradient in bf16 is new.
inline constexpr LossBytes kLossInPlace{38, 14, 6, 2};
// One kernel reads logits twice and writes the gradient over them.
inline constexpr LossBytes kFusedLoss{10, 4, 4, 2};
// PyTorch's cross_entropy keeps logits in bf16 and fp32 and their log-probabilities, and makes two gradients in fp32.
inline constexpr LossBytes kSeparateLoss{36, 30, 10, 8};

// How a device computes its experts: all in the same call, or each by itself in sequence (GroupedMLP and SequentialMLP
// of Megatron-Core).
enum class ExpertKernels : std::uint8_t { Grouped, Sequential };
template <>
inline constexpr Choice<ExpertKernels> kChoices<ExpertKernels>[] = {{"grouped", ExpertKernels::Grouped},
                                                                    {"sequential", ExpertKernels::Sequential}};

// How tokens reach their experts.
enum class ExpertDispatcher : std::uint8_t {
    AllToAll,  // a copy for each expert of a token, which the ranks of `expert_tensor` gather (Megatron-Core, alltoall)
    Gathered,  // tensor ranks gather their tokens, then a copy for each expert (torchtitan, apply_moe_ep_tp)
    DeepEp     // a token goes once to each rank that has some of its experts (Megatron-Core, flex)
};
template <>
inline constexpr Choice<ExpertDispatcher> kChoices<ExpertDispatcher>[] = {{"alltoall", ExpertDispatcher::AllToAll},
                                                                          {"gathered", ExpertDispatcher::Gathered},
                                                                          {"deepep", ExpertDispatcher::DeepEp}};

// The kernels that a host launches in CUDA graphs.
enum class CudaGraphs : std::uint8_t {
    None,
    Dense,  // all but the kernels of routed experts (Megatron-Bridge: attn, moe_router, moe_preprocess)
    All     // a graph of each block, or of the whole step
};
template <>
inline constexpr Choice<CudaGraphs> kChoices<CudaGraphs>[] = {
    {"none", CudaGraphs::None}, {"dense", CudaGraphs::Dense}, {"all", CudaGraphs::All}};

struct ReleaseFacts {
    Release release;
    std::optional<Program> program = {};  // absent: a program that takes no plan
    AttentionKernels attention;
    Overlap overlap = {};
    ExpertKernels experts = ExpertKernels::Grouped;
    ExpertDispatcher dispatcher = ExpertDispatcher::AllToAll;
    bool fuses = true;           // activations and rotations are one kernel each
    bool fuses_norms = true;     // norms are
    bool dropout = false;        // values are dropped, and masks are saved
    Bytes gradient = 4;          // bytes of a number in sums of gradients
    Bytes divided_gradient = 0;  // the same with ZeRO-2 and 3, 0: unchanged. Megatron FSDP's guide recommends bf16
    // Whether a block that is recomputed also repeats its last product, which no backward reads.
    bool repeats_last = true;
    bool copies_gathered = false;  // ZeRO-3 copies gathered weights out of its buffer, and gradients into it
    bool splits_logits = true;     // each tensor rank has the logits of its part of the vocabulary, else all logits
    LossBytes loss = kLossInPlace;
};
const ReleaseFacts& facts_of(Release release);
inline constexpr Release kUsualRelease = Release::NeMo2025;  // where none is named

}  // namespace pw

#include "workloads/transformers/framework.h"

#include <cstddef>
#include <iterator>

namespace pw {

namespace {

using enum AttentionKernels;

constexpr Overlap kOverlapsBackward{.tensor_backward = true}, kOverlapsSums{.tensor_backward = true, .data = true},
    kOverlapsStages{.tensor_backward = true, .data = true, .pipeline = true},
    kOverlapsProducts{.tensor = true, .tensor_backward = true, .data = true, .pipeline = true};

constexpr ReleaseFacts kReleases[] = {
    {.release = Release::Megatron2021, .program = Program::MegatronLm, .attention = Unfused, .dropout = true},
    {.release = Release::DeepSpeed2022,
     .program = Program::DeepSpeed,
     .attention = Unfused,
     .experts = ExpertKernels::Sequential,  // deepspeed/moe/experts.py calls them in a loop
     .dropout = true},
    {.release = Release::Megatron2022,
     .program = Program::MegatronLm,
     .attention = Unfused,
     .overlap = kOverlapsBackward,
     .dropout = true},
    {.release = Release::NeMo2023,
     .program = Program::MegatronLm,
     .attention = Cudnn,
     .overlap = kOverlapsStages,
     .dropout = true,
     .gradient = 2},
    {.release = Release::NeMo2024,
     .program = Program::MegatronLm,
     .attention = Cudnn,
     .overlap = kOverlapsProducts,
     .divided_gradient = 2},
    {.release = Release::NeMo2025,
     .program = Program::MegatronLm,
     .attention = Cudnn,
     .overlap = kOverlapsProducts,
     .dispatcher = ExpertDispatcher::DeepEp,
     .divided_gradient = 2,
     .loss = kFusedLoss},
    // torchtitan's blocks stop to recompute when all that a backward reads is there (set_checkpoint_early_stop of
    // torch.utils.checkpoint, which is on without reentrance), and compilers drop what nothing reads.
    {.release = Release::TorchTitan,
     .program = Program::TorchTitan,
     .attention = Flash,
     .overlap = kOverlapsSums,
     .dispatcher = ExpertDispatcher::Gathered,
     .fuses = false,
     .fuses_norms = false,
     .repeats_last = false,
     .copies_gathered = true},
    {.release = Release::TorchTitanCompiled,
     .program = Program::TorchTitan,
     .attention = Flash,
     .overlap = kOverlapsSums,
     .dispatcher = ExpertDispatcher::Gathered,
     .repeats_last = false,
     .copies_gathered = true},
    {.release = Release::Fsdp2023, .attention = Flash, .overlap = kOverlapsSums, .fuses = false, .fuses_norms = false},
    {.release = Release::Scaling2023, .attention = Flash, .gradient = 2, .splits_logits = false, .loss = kSeparateLoss},
    // Megatron-LM's own layers with RMSNorm and SwiGLU, which are PyTorch's kernels (megatron/model/transformer.py and
    // rms_norm.py, megatron/core/models/common/rotary_pos_embedding.py of 2023).
    {.release = Release::Megatron2023,
     .program = Program::MegatronLm,
     .attention = Flash,
     .overlap = kOverlapsBackward,
     .fuses = false,
     .fuses_norms = false},
    // Rotations and the gate are separate kernels, and gradients stay in the precision of the weights
    // (PaddlePaddle/PaddleNLP, paddlenlp/transformers/llama/modeling.py; amp_master_grad of its Trainer is off).
    {.release = Release::Paddle2023, .attention = Flash, .fuses = false, .gradient = 2},
};

constexpr bool releases_are_in_order() {
    for (std::size_t row = 0; row < std::size(kReleases); ++row)
        if (kReleases[row].release != static_cast<Release>(row))
            return false;
    return true;
}
static_assert(releases_are_in_order() && std::size(kReleases) == std::size(kChoices<Release>),
              "every release has its row, in the order of the enum");

}  // namespace

const ReleaseFacts& facts_of(Release release) { return kReleases[static_cast<std::size_t>(release)]; }

}  // namespace pw

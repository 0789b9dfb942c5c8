#include "workloads/transformers/framework.h"

#include <cstddef>
#include <iterator>

namespace pw {

namespace {

using enum AttentionKernels;

// The time of a launch from Python is that of PyTorch 2.11 on the host of results/h100 (host_us_per_kernel); releases
// with CUDA graphs or compiled blocks launch faster.
constexpr double kPython = 27.45e-6, kCompiled = 10e-6;

// Logits become fp32 and are read for maximum and sum, the difference and its exponential are written: with a kernel
// for each, 32 bytes per logit forward and 22 backward; with one kernel for all, logits are read twice and gradients
// written.
constexpr double kForward = 32, kBackward = 22, kFusedForward = 10, kFusedBackward = 4;

constexpr Overlap kNone{}, kData{.data = true}, kPipeline{.pipeline = true},
    kDataAndPipeline{.data = true, .pipeline = true}, kAllButExpert{.tensor = true, .data = true, .pipeline = true};

constexpr ReleaseFacts kReleases[] = {
    // clang-format off
    // release, attention, overlap, hides tensor backward, fuses, dropout, gradient, loss forward, backward, host
    {Release::Megatron2021,       Unfused, kNone,            false, true,  true,  4, kForward, kBackward, kPython},
    {Release::DeepSpeed2022,      Unfused, kNone,            false, true,  true,  4, kForward, kBackward, kPython},
    {Release::Megatron2022,       Unfused, kPipeline,        true,  true,  true,  4, kForward, kBackward, kPython},
    {Release::NeMo2023,           Cudnn,   kDataAndPipeline, true,  true,  true,  2, kForward, kBackward, kCompiled},
    {Release::NeMo2024,           Cudnn,   kAllButExpert,    true,  true,  false, 4, kForward, kBackward, kCompiled},
    {Release::NeMo2025,           Cudnn,   kAllButExpert,    true,  true,  false, 4, kFusedForward, kFusedBackward, kCompiled},
    {Release::TorchTitan,         Flash,   kData,            true,  false, false, 4, kForward, kBackward, kPython},
    {Release::TorchTitanCompiled, Flash,   kData,            true,  true,  false, 4, kForward, kBackward, kCompiled},
    {Release::Fsdp2023,           Flash,   kData,            true,  false, false, 4, kForward, kBackward, kPython},
    // clang-format on
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

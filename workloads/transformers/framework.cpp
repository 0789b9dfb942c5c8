#include "workloads/transformers/framework.h"

#include <cstddef>
#include <iterator>

namespace pw {

namespace {

using enum AttentionKernels;

// The time of a launch from Python: that of PyTorch 2.11 on the host of results/h100 (host_us_per_kernel).
constexpr double kPython = 27.45e-6;

struct Loss {
    double forward, backward, saved, scratch;
};
// Bytes per logit. With a kernel for each step, logits become fp32 and are read for maximum and sum, the difference and
// its exponential are written. Megatron-LM works in place: logits in bf16 and probabilities in fp32 are saved, the
// gradient in bf16 is new. One kernel for all reads logits twice and writes the gradient over them. PyTorch's
// cross_entropy keeps logits in bf16 and fp32 and their log-probabilities, and the backward makes two gradients in
// fp32.
constexpr Loss kInPlace{32, 22, 6, 2}, kFused{10, 4, 4, 2}, kSeparate{36, 30, 10, 8};

constexpr Overlap kNone{}, kData{.tensor_backward = true, .data = true}, kBackward{.tensor_backward = true},
    kDataAndPipeline{.tensor_backward = true, .data = true, .pipeline = true},
    kAllButExpert{.tensor = true, .tensor_backward = true, .data = true, .pipeline = true};

constexpr ReleaseFacts row(Release release, AttentionKernels attention, Overlap overlap, bool fuses, bool dropout,
                           Bytes gradient, Loss loss, double host, bool splits_logits = true, bool sends_once = false) {
    return {.release = release,
            .attention = attention,
            .overlap = overlap,
            .fuses = fuses,
            .fuses_norms = fuses,
            .dropout = dropout,
            .gradient = gradient,
            .copies_gathered = release == Release::TorchTitan || release == Release::TorchTitanCompiled,
            .sends_once = sends_once,
            .splits_logits = splits_logits,
            .loss_forward = loss.forward,
            .loss_backward = loss.backward,
            .loss_saved = loss.saved,
            .loss_scratch = loss.scratch,
            .host = host};
}

constexpr ReleaseFacts kReleases[] = {
    // clang-format off
    //                               attention overlap        fuses dropout gradient loss   host
    row(Release::Megatron2021,       Unfused, kNone,            true,  true,  4, kInPlace,  kPython),
    row(Release::DeepSpeed2022,      Unfused, kNone,            true,  true,  4, kInPlace,  kPython),
    row(Release::Megatron2022,       Unfused, kBackward,        true,  true,  4, kInPlace,  kPython),
    row(Release::NeMo2023,           Cudnn,   kDataAndPipeline, true,  true,  2, kInPlace,  kPython),
    row(Release::NeMo2024,           Cudnn,   kAllButExpert,    true,  false, 4, kInPlace,  kPython),
    row(Release::NeMo2025,           Cudnn,   kAllButExpert,    true,  false, 4, kFused,    kPython, true, true),
    row(Release::TorchTitan,         Flash,   kData,            false, false, 4, kInPlace,  kPython),
    row(Release::TorchTitanCompiled, Flash,   kData,            true,  false, 4, kInPlace,  kPython),
    row(Release::Fsdp2023,           Flash,   kData,            false, false, 4, kInPlace,  kPython),
    row(Release::Scaling2023,        Flash,   kNone,            true,  false, 2, kSeparate, kPython, false),
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

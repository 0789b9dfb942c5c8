#include "workloads/transformers/framework.h"

#include <cstddef>
#include <iterator>

namespace pw {

namespace {

using enum AttentionKernels;

// The time of a launch from Python is that of PyTorch 2.11 on the host of results/h100 (host_us_per_kernel); releases
// with CUDA graphs or compiled blocks launch faster.
constexpr double kPython = 27.45e-6, kCompiled = 10e-6;

constexpr ReleaseFacts kReleases[] = {
    // clang-format off
    // release                   attention tensor backward, tensor, data, pipeline, expert, fuses, dropout, gradient, host
    {Release::Megatron2021,       Unfused, false, false, false, false, false, true,  true,  4, kPython},
    {Release::DeepSpeed2022,      Unfused, false, false, false, false, false, true,  true,  4, kPython},
    {Release::Megatron2022,       Unfused, true,  false, false, true,  false, true,  true,  4, kPython},
    {Release::NeMo2023,           Cudnn,   true,  false, true,  true,  false, true,  true,  2, kCompiled},
    {Release::NeMo2024,           Cudnn,   true,  true,  true,  true,  false, true,  false, 2, kCompiled},
    {Release::NeMo2025,           Cudnn,   true,  true,  true,  true,  false, true,  false, 2, kCompiled},
    {Release::TorchTitan,         Flash,   true,  false, true,  false, false, false, false, 4, kPython},
    {Release::TorchTitanCompiled, Flash,   true,  false, true,  false, false, true,  false, 4, kCompiled},
    {Release::Fsdp2023,           Flash,   true,  false, true,  false, false, false, false, 4, kPython},
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

// Why a search for a cluster leaves choices out before it bounds them.
#pragma once

#include "job/setup/search_setup.h"
#include "search/plan_choice.h"

#include <cstdint>

namespace pw {

// Why a choice cannot be run, in the order in which it is checked.
enum class Misfit : std::uint8_t {
    None,
    Heads,
    Sequence,
    Devices,
    ZeroGroup,
    Experts,
    ExpertTensor,
    Stages,
    Slices,
    MiniBatch
};

// Completes a choice whose degrees, schedule and size are set.
Misfit complete_choice(const SearchSetup& setup, PlanChoice& choice);

// Returns Parallel::sequence of a choice with this degree of tensor.
bool takes_sequence(const SearchSetup& setup, int tensor);

// Returns whether this many context ranks divide the sequences of the workload.
bool divides_sequences(const SearchSetup& setup, int context);

// Throws Error (BadInput) at the key that no choice fits, if `worst` is the last check that a choice failed.
[[noreturn]] void refuse_misfit(Misfit worst, const SearchSetup& setup);

}  // namespace pw

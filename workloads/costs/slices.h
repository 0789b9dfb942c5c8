// The costs of slices: the sequences of a micro-batch are cut into parts, which pass through the stages in sequence.
#pragma once

#include "workloads/costs/costs.h"
#include "workloads/text/choice.h"

#include <cstdint>
#include <vector>

namespace pw {

// Where the sequences are cut: the end of every slice, in parts of the whole, ascending. The last is 1.
using SliceEnds = std::vector<double>;

enum class SliceLengths : std::uint8_t { Even, Time };
template <>
inline constexpr Choice<SliceLengths> kChoices<SliceLengths>[] = {
    {"even", SliceLengths::Even},   // equally many tokens
    {"time", SliceLengths::Time}};  // equal times: later slices have fewer tokens, since their tokens attend to more

// Returns the ends of slices of equal time, where causal attention is this part of the time of a sequence. The time of
// the first x of a sequence is then (1 - attention) x + attention x^2 (Sun et al. 2024, arXiv 2406.03488, section 3.3).
// Without attention the slices are even. If `tokens` is not 0, every slice is a multiple of `grain` tokens. `tokens` is
// then a multiple of `grain`, and at least `slices` times as large.
SliceEnds slice_ends(int slices, double attention, int tokens = 0, int grain = 1);

// Returns the part of all passes that is causal attention. 0 if Costs::attention is empty.
double attention_part(const Costs& costs);

// Sets Costs::slices. Each slice takes its share of a stage's time and bytes. Causal attention (Costs::attention) takes
// longer for later slices, since their rows attend to more keys: from b to e of the sequence it takes e^2 - b^2 of its
// time.
void cut_in_slices(Costs& costs, const SliceEnds& ends);

}  // namespace pw

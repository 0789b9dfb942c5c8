// How long a forward and a backward of different micro-batches take together, if messages to experts travel while a
// device computes for the second micro-batch.
#pragma once

#include "workloads/stages/stage_split.h"
#include "workloads/transformers/layer_costs.h"
#include "workloads/units.h"

#include <optional>
#include <vector>

namespace pw {

// A part of a pass, in seconds. It computes, or it is a message.
struct PassStep {
    bool is_message = false;
    double seconds = 0;
};
using PassSteps = std::vector<PassStep>;

// Returns when both passes are over if a device computes a single step at a time, sends a single message at a time, and
// starts the step that can start first. If both passes can start a step at once, the pass with the most left goes
// first.
double time_of_both(const PassSteps& a, const PassSteps& b);

// Returns, by stage, the time of a pair of its F and the B of the stage `partner[stage]`, for micro-batches of
// `samples` sequences. The layers of both passes interleave as in DualPipe (arXiv 2412.19437, section 3.2.1). What
// messages hide takes longer (docs/clusters.md). Absent if no message is hidden.
std::vector<std::optional<Ns>> pair_times(const TransformerJob& job, const StageSplit& split,
                                          const std::vector<int>& partner, int samples);

}  // namespace pw

// The sum of the gradients of a tensor that several layers read.
#pragma once

#include "workloads/stages/stage_layout.h"

#include <cstddef>
#include <vector>

namespace pw {

// A summand of a tensor's gradient, from a layer of this stage or from another stage.
struct Contribution {
    int group, reader, position;  // StageSplit::group_of(reader), and which of the reader's inputs the tensor is
    bool local;
    Slot inbox;  // when it comes from another stage
};

// Puts contributions in the order of the sum: descending groups, and in a group descending readers.
void sort_for_sum(std::vector<Contribution>& contributions);

// A step of the sum: contribution `from` is added to contribution `to`, as soon as the backward of the layer `after` is
// done. If `from` comes from another stage, `after` has no meaning.
struct Addition {
    std::size_t from, to;
    int after;
};

// Returns the steps that add sorted contributions to the first contribution: the contributions of a group are added to
// the first of the group, and then the group to the whole. Every contribution except the first is the `from` of one
// step.
std::vector<Addition> additions_of(const std::vector<Contribution>& contributions);

}  // namespace pw

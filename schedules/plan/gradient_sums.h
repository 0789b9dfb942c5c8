// How the gradients of a stage are summed over its holders, and what that costs.
#pragma once

#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/ties.h"

#include <vector>

namespace pw {

// Works out how S, the sum of gradients, runs on every stage of the shape, and what it costs. The holders sum with the
// cluster's algorithm `sums`, over the links between their hosts; then all devices that share a parameter sum. With
// `costs.zero` 1 S leaves each holder its part of the sum, U updates that part and then distributes the new weights;
// the part is taken from the time of U, so call this once. With `costs.sum_bucket` S sums in buckets: its duration is
// what remains after the backward, or the W, that makes the last gradients. Stages that share a parameter with another
// one sum everything at once.
// With 2 each pass that makes gradients of weights ends when they are summed in parts, and S has nothing left to sum.
// With 3 each pass but W begins when it has gathered the weights, and U distributes none. Both are as much longer as
// their messages take, of which buckets overlap the pass.
void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties = {},
                       SumAlgorithm algorithm = SumAlgorithm::Ring);

}  // namespace pw

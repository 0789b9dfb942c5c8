// How the gradients of a stage are summed over its holders, and what that costs.
#pragma once

#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/ties.h"

#include <vector>

namespace pw {

// Works out how S, the sum of gradients, runs on every stage of the shape, and what it costs. The holders sum with the
// cluster's algorithm `sums`, over the links between their hosts. Then all devices that share a parameter sum. With
// `costs.zero` 1 S leaves each holder its part of the sum. U updates that part and then distributes the new weights.
// The part is taken from the time of U, so call this once. With `costs.sum_bucket` S sums in buckets: its duration is
// what remains after the backward, or the W, that makes the last gradients. Stages that share a parameter with another
// stage sum everything at once.
// With ZeRO-2 each pass that makes gradients of weights ends with their sum in parts, and S takes no time. With ZeRO-3
// each pass but W also begins with a gather of the weights, and U distributes no weights. Messages lengthen a pass by
// the part that buckets do not overlap.
void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties = {},
                       SumAlgorithm algorithm = SumAlgorithm::Ring);

}  // namespace pw

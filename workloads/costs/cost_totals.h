// Sums of all parts of a cost, as doubles, which do not overflow. Limits are checked against these sums.
#pragma once

#include "workloads/costs/costs.h"

namespace pw {

inline double all_times_of(const StageCost& cost) {
    double sum = 0;
    for (Ns StageCost::*const time : kLayerTimes)
        sum += static_cast<double>(cost.*time);
    return sum;
}

inline double all_bytes_of(const LayerBytes& bytes) {
    double sum = 0;
    for (const Bytes part : {bytes.weights, bytes.frozen, bytes.statistics, bytes.output, bytes.saved_until_input,
                             bytes.kept_until_weight, bytes.gradient_until_weight, bytes.scratch})
        sum += static_cast<double>(part);
    return sum;
}

}  // namespace pw

// Plans of asynchronous schedules, with replicas and weight policies.
#pragma once

#include "tests/support/shapes.h"

#include <string_view>

namespace pw {

inline Plan plan_with(std::string_view schedule, const Replicas& replicas, int m, int per_update,
                      const PlanOptions& options = {}) {
    Shape shape = shape_of(replicas, m);
    shape.per_update = per_update;
    return make_plan(schedule_named(schedule), shape, options);
}

inline PlanOptions with_policy(WeightPolicy policy, Prediction prediction = Prediction::None) {
    PlanOptions options;
    options.weights = policy;
    options.prediction = prediction;
    return options;
}

}  // namespace pw

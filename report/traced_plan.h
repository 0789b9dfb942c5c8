// A plan that is known from its trace alone, proven.
#pragma once

#include "job/job.h"
#include "job/trace_config.h"
#include "schedules/passes/passes.h"
#include "schedules/trace/trace_plan.h"

#include <memory>

namespace pw {

// Throws Error when the plan of the trace cannot be proven.
struct TracedPlan {
    explicit TracedPlan(const Trace& trace)
        : rules(trace_rules(trace)), plan(plan_of(trace, rules.global_norm)), proof(check(plan, checked_mode())) {}

    // The sizes of messages, by which an eager limit goes, are known to the replay.
    TransferMode checked_mode() const {
        TransferMode mode = rules.mode;
        if (mode.eager_limit > 0)
            mode.protocol = TransferMode::Protocol::Eager;
        return mode;
    }

    TraceRules rules;
    Plan plan;
    std::shared_ptr<const Proof> proof;
};

}  // namespace pw

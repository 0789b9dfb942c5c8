#include "search/plans/any_order.h"

#include "schedules/passes/passes.h"

namespace pw {

Plan plan_of_any_order(const Setup& setup, const StageLinks& links) {
    Plan plan;
    plan.schedule = setup.pipeline.schedule;
    plan.shape = shape_of(setup, links, setup.training.steps);
    plan.order.resize(static_cast<std::size_t>(plan.shape.devices));
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (const Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight})
            for (int mb = 0; mb < plan.shape.microbatches; ++mb)
                plan.order[static_cast<std::size_t>(plan.shape.server_of(stage, mb))].push_back({op, stage, mb});
    add_updates(plan);
    if (setup.pipeline.recompute.saved == 0)  // else the order decides how many R there are
        add_recomputes(plan, setup.pipeline.recompute);
    return plan;
}

}  // namespace pw

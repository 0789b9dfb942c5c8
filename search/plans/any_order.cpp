#include "search/plans/any_order.h"

#include "schedules/passes/passes.h"

namespace pw {

Plan plan_of_any_order(const Config& config, const StageLinks& links) {
    Plan plan;
    plan.schedule = config.pipeline.schedule;
    plan.shape = shape_of(config, links, config.training.steps);
    plan.order.resize(static_cast<std::size_t>(plan.shape.devices));
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (const Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight})
            for (int mb = 0; mb < plan.shape.microbatches; ++mb)
                plan.order[static_cast<std::size_t>(plan.shape.server_of(stage, mb))].push_back({op, stage, mb});
    add_updates(plan);
    if (config.pipeline.recompute.saved == 0)  // else the order decides how many R there are
        add_recomputes(plan, config.pipeline.recompute);
    return plan;
}

}  // namespace pw

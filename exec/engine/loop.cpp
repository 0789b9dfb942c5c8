#include "exec/engine/loop.h"

namespace pw {

std::vector<Interval> run_list(const Plan& plan, const PlanGraph& graph, int device, int step, Backend& backend) {
    const std::vector<Task>& order = plan.order[device];
    std::vector<Ticket> launched;
    std::vector<Ticket> after;
    backend.begin_step(step);
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        after.clear();
        for (int input : graph.inputs(graph.node(device, position)))
            if (graph.device_of(input) == device)  // one made elsewhere is this device's RECV
                after.push_back(launched[graph.position_of(input)]);
        launched.push_back(backend.launch(order[position], position, after));
    }
    backend.all_launched();
    std::vector<Interval> intervals;
    for (const Ticket ticket : launched)
        intervals.push_back(backend.finish(ticket));
    return intervals;
}

}  // namespace pw

#include "exec/engine/pin.h"

#include <algorithm>

namespace pw {

CorePlan plan_cores(int devices, int threads, const std::vector<int>& nodes) {
    return plan_cores(usable_cores(), devices, threads, nodes);
}

CorePlan plan_cores(const std::vector<UsableCore>& usable, int devices, int threads, const std::vector<int>& nodes) {
    const auto wanted = static_cast<std::size_t>(threads);
    CorePlan plan;
    plan.cores.resize(static_cast<std::size_t>(devices));
    plan.shared = plan.cores.size() * wanted > usable.size();
    std::vector<bool> taken(usable.size(), false);
    const auto take = [&](std::vector<int>& cores, auto fits) {
        std::vector<std::size_t> found;
        for (std::size_t i = 0; i < usable.size() && found.size() < wanted; ++i)
            if (!taken[i] && fits(usable[i]))
                found.push_back(i);
        for (std::size_t k = 0; found.size() == wanted && k < wanted; ++k) {
            cores.push_back(usable[found[k]].number);
            taken[found[k]] = true;
        }
    };
    for (std::size_t device = 0; !plan.shared && device < std::min(nodes.size(), plan.cores.size()); ++device)
        if (nodes[device] >= 0)
            take(plan.cores[device], [&](const UsableCore& core) { return core.node == nodes[device]; });
    for (std::size_t device = 0; device < plan.cores.size(); ++device) {
        if (!plan.shared && plan.cores[device].empty())
            take(plan.cores[device], [](const UsableCore&) { return true; });
        for (std::size_t k = 0; plan.shared && !usable.empty() && k < wanted; ++k)
            plan.cores[device].push_back(usable[(device * wanted + k) % usable.size()].number);
    }
    return plan;
}

}  // namespace pw

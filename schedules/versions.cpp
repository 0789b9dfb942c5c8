#include "schedules/versions.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

bool is_backward(Op op) { return op == Op::Backward || op == Op::BackwardInput; }

// What F and B would use if every stage took the newest version at that place of its device's list.
void newest_versions(const Plan& plan, VersionTable& table) {
    for (const std::vector<Task>& order : plan.order) {
        std::vector<int> updates(static_cast<std::size_t>(plan.shape.stages), 0);
        for (const Task& task : order) {
            if (task.op == Op::Update)
                ++updates[task.stage];
            else if (task.op == Op::Forward)
                table.forward[task.stage][task.microbatch] = updates[task.stage];
            else if (is_backward(task.op))
                table.backward[task.stage][task.microbatch] = updates[task.stage];
        }
    }
}

// [version] -> last position of `order` that reads it; -1: none.
std::vector<int> last_uses(const std::vector<Task>& order, const VersionTable& table, int stage) {
    std::vector<int> last;
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        const Task& task = order[position];
        const bool forward = task.op == Op::Forward || task.op == Op::Recompute;
        if (task.stage != stage || !(forward || is_backward(task.op)))
            continue;
        const auto& row = forward ? table.forward[stage] : table.backward[stage];
        const auto version = static_cast<std::size_t>(row[task.microbatch]);
        last.resize(std::max(last.size(), version + 1), -1);
        last[version] = position;
    }
    return last;
}

}  // namespace

VersionTable versions_of(const Plan& plan) {
    VersionTable table;
    table.forward.assign(static_cast<std::size_t>(plan.shape.stages),
                         std::vector<int>(static_cast<std::size_t>(plan.shape.microbatches), 0));
    table.backward = table.forward;
    newest_versions(plan, table);
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (int mb = 0; mb < plan.shape.microbatches; ++mb) {
            int& forward = table.forward[stage][mb];
            if (plan.weights == WeightPolicy::VerticalSync)
                forward = table.forward[0][mb];
            if (plan.weights == WeightPolicy::DoubleBuffer)
                forward = std::max(mb / std::max(plan.shape.per_update, 1) - 1, 0);
            if (plan.weights != WeightPolicy::Latest)
                table.backward[stage][mb] = forward;
        }
    return versions_in_order_of(plan, std::move(table));
}

VersionTable versions_in_order_of(const Plan& plan, VersionTable table) {
    table.held.clear();
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        int held = 1;
        for (int device : plan.shape.devices_of(stage)) {
            const std::vector<int> slots = weight_slots(plan, table, stage, device);
            held = std::max(held, *std::max_element(slots.begin(), slots.end()) + 1);
        }
        table.held.push_back(held);
    }
    return table;
}

int version_of(const Task& task, const VersionTable& table, const Plan& plan) {
    switch (task.op) {
        case Op::Forward:
        case Op::Recompute:
            return table.forward[task.stage][task.microbatch];
        case Op::Backward:
        case Op::BackwardInput:
        case Op::BackwardWeight:
            return table.backward[task.stage][task.microbatch];
        case Op::Update:
            return plan.shape.per_update == 0 ? 1 : task.microbatch / plan.shape.per_update + 1;
        default:
            return -1;
    }
}

std::vector<int> weight_slots(const Plan& plan, const VersionTable& table, int stage, int device) {
    const std::vector<Task>& order = plan.order[device];
    std::vector<int> last = last_uses(order, table, stage);
    std::vector<int> slots{0};
    std::vector<int> version_in{0};  // slot -> the version it holds
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        if (order[position].stage != stage || order[position].op != Op::Update)
            continue;
        const int version = static_cast<int>(slots.size());
        last.resize(std::max(last.size(), slots.size() + 1), -1);
        int slot = slots.back();  // in place when nobody reads the newest again
        if (last[version - 1] > position) {
            slot = 0;
            while (slot < static_cast<int>(version_in.size()) &&
                   (version_in[slot] == version - 1 || last[version_in[slot]] > position))
                ++slot;
            if (slot == static_cast<int>(version_in.size()))
                version_in.push_back(version);
        }
        version_in[slot] = version;
        slots.push_back(slot);
    }
    return slots;
}

std::string print(const VersionTable& table) {
    std::string text = "stage  held  version used by each micro-batch (F/B where they differ)\n";
    for (std::size_t stage = 0; stage < table.forward.size(); ++stage) {
        text += fmt::format("{:>5}  {:>4} ", stage, table.held[stage]);
        for (std::size_t mb = 0; mb < table.forward[stage].size(); ++mb) {
            const int forward = table.forward[stage][mb], backward = table.backward[stage][mb];
            text += forward == backward ? fmt::format(" {}", forward) : fmt::format(" {}/{}", forward, backward);
        }
        text += '\n';
    }
    return text;
}

}  // namespace pw

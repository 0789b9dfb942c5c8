#include "sim/idle.h"

#include <algorithm>
#include <span>

namespace pw {

namespace {

// Cuts a gap of a device's time into parts, from its beginning on.
class Gap {
public:
    Gap(int device, int node, Ns from, Ns to, std::vector<IdlePart>& parts)
        : device_(device), node_(node), from_(from), to_(std::max(from, to)), parts_(parts) {}
    void until(Ns time, Ns IdleCauses::*cause, int waits_for = -1) {
        const Ns end = std::clamp(time, from_, to_);
        if (end > from_)
            parts_.push_back({device_, from_, end, cause, node_, waits_for});
        from_ = end;
    }
    void rest(Ns IdleCauses::*cause) { until(to_, cause); }

private:
    int device_, node_;
    Ns from_, to_;
    std::vector<IdlePart>& parts_;
};

int last_input(const PlanGraph& graph, const std::vector<Ns>& ends, int node) {
    int last = -1;
    for (const int input : graph.inputs(node))
        if (last < 0 || ends[input] > ends[last])
            last = input;
    return last;
}

// The transfers and copies to the host that a list has passed since a task.
struct Passed {
    std::vector<int> exchange, offloads;
};

// Cuts the gap before a node, `passed` since the task before it.
void cut(const PlanGraph& graph, bool blocks, const NodeTimes& times, int node, const Passed& passed,
         Ns IdleCauses::*rest, Gap gap) {
    if (const int input = last_input(graph, times.end, node); input >= 0) {
        if (is_copy(graph.task(input).op)) {
            gap.until(times.end[input], &IdleCauses::host_copy, input);
        } else if (!is_recv(graph.task(input).op)) {
            gap.until(times.end[input], &IdleCauses::dependency, input);
        } else {
            const int send = graph.inputs(input).front(), made_by = last_input(graph, times.end, send);
            gap.until(times.end[made_by], &IdleCauses::dependency, made_by);
            gap.until(times.start[send], &IdleCauses::lane, send);
            gap.until(times.end[send] + times.latency[send], &IdleCauses::data, send);
            gap.until(times.end[input], &IdleCauses::lane, input);
        }
    }
    for (const int offload : passed.offloads)
        gap.until(times.end[offload], &IdleCauses::host_copy, offload);
    if (blocks)
        for (const int transfer : passed.exchange)
            gap.until(times.end[transfer], &IdleCauses::exchange, transfer);
    gap.rest(rest);
}

}  // namespace

std::vector<int> last_inputs(const PlanGraph& graph, const std::vector<Ns>& ends) {
    std::vector<int> last;
    last.reserve(static_cast<std::size_t>(graph.size()));
    for (int node = 0; node < graph.size(); ++node)
        last.push_back(last_input(graph, ends, node));
    return last;
}

std::vector<IdlePart> idle_parts(const Plan& plan, const PlanGraph& graph, bool blocks, const NodeTimes& times,
                                 Ns makespan, Ns IdleCauses::*rest) {
    std::vector<IdlePart> parts;
    Passed passed;
    int node = 0;
    for (int device = 0; device < static_cast<int>(plan.order.size()); ++device) {
        Ns free = 0;
        bool begun = false;
        passed = {};
        for (const Task& task : plan.order[static_cast<std::size_t>(device)]) {
            const int here = node++;
            if (is_transfer(task.op))
                passed.exchange.push_back(here);
            if (leaves_device(task.op))
                passed.offloads.push_back(here);
            if (moves_data(task.op))
                continue;
            Gap gap(device, here, free, times.start[here], parts);
            if (begun)
                cut(graph, blocks, times, here, passed, rest, gap);
            else
                gap.rest(&IdleCauses::warm_up);
            begun = true;
            passed = {};
            free = std::max(free, times.end[here]);
        }
        Gap(device, -1, free, makespan, parts).rest(&IdleCauses::cool_down);
    }
    return parts;
}

}  // namespace pw

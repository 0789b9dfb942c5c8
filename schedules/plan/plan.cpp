#include "schedules/plan/plan.h"

#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace pw {

std::vector<int> Shape::devices_of(int stage) const {
    return placement.empty() ? std::vector<int>{stage % devices} : placement[stage];
}

std::vector<int> Shape::stages_of(int device) const {
    std::vector<int> found;
    if (placement.empty())
        for (int stage = device; stage < stages; stage += devices)
            found.push_back(stage);
    for (int stage = 0; stage < static_cast<int>(placement.size()); ++stage) {
        const std::vector<int>& holders = placement[stage];
        if (std::find(holders.begin(), holders.end(), device) != holders.end())
            found.push_back(stage);
    }
    return found;
}

int Shape::server_of(int stage, int microbatch) const {
    if (serving.empty() && placement.empty())
        return stage % devices;
    const std::vector<int>& turns = (serving.empty() ? placement : serving)[stage];
    return turns[static_cast<std::size_t>(whole_of(microbatch)) % turns.size()];
}

int Shape::devices_before(int stage) const {
    if (placement.empty())
        return stage;
    int count = 0;
    for (int earlier = 0; earlier < stage; ++earlier)
        count += static_cast<int>(devices_of(earlier).size());
    return count;
}

std::vector<int> Shape::before(int stage) const {
    if (!edges)
        return stage > 0 ? std::vector<int>{stage - 1} : std::vector<int>{};
    std::vector<int> found;
    for (const Edge& edge : *edges)
        if (edge.to == stage)
            found.push_back(edge.from);
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<int> Shape::after(int stage) const {
    if (!edges)
        return stage + 1 < stages ? std::vector<int>{stage + 1} : std::vector<int>{};
    std::vector<int> found;
    for (const Edge& edge : *edges)
        if (edge.from == stage)
            found.push_back(edge.to);
    std::sort(found.begin(), found.end());
    return found;
}

bool Shape::runs_forwards_only(int stage) const { return std::ranges::binary_search(forwards_only, stage); }

bool Shape::is_joined(int stage) const { return std::ranges::binary_search(joined, stage); }

int Shape::updates() const { return per_update == 0 ? 1 : (microbatches - 1) / per_update + 1; }

int Shape::mini_batch_of(int microbatch) const { return per_update == 0 ? 0 : microbatch / per_update; }

int Shape::first_of(int mini_batch) const { return mini_batch * per_update; }

int Shape::last_of(int mini_batch) const {
    if (per_update == 0)
        return microbatches - 1;
    return static_cast<int>(std::min<std::int64_t>((std::int64_t{mini_batch} + 1) * per_update, microbatches)) - 1;
}

bool Shape::ends_mini_batch(int microbatch) const { return last_of(mini_batch_of(microbatch)) == microbatch; }

bool Shape::is_in_last_of_mini_batch(int microbatch) const {
    return whole_of(last_of(mini_batch_of(microbatch))) == whole_of(microbatch);
}

Task Shape::task(Op op, int stage, int microbatch) const { return {op, stage, microbatch, slices > 1 ? slices : 0}; }

std::vector<std::vector<int>> placement_of(const std::vector<int>& replicas) {
    std::vector<std::vector<int>> placement;
    int device = 0;
    for (const int count : replicas) {
        std::vector<int>& holders = placement.emplace_back();
        for (int replica = 0; replica < count; ++replica)
            holders.push_back(device++);
    }
    return placement;
}

void serve_as_listed(Plan& plan) {
    Shape& shape = plan.shape;
    shape.serving.clear();
    if (std::all_of(shape.placement.begin(), shape.placement.end(),
                    [](const std::vector<int>& holders) { return holders.size() <= 1; }))
        return;
    std::vector<std::vector<int>> listed(static_cast<std::size_t>(shape.stages));
    for (int stage = 0; stage < shape.stages; ++stage)
        for (int mb = 0; mb < shape.microbatches; ++mb)
            listed[stage].push_back(shape.placement[stage].empty() ? -1 : shape.server_of(stage, mb));
    bool in_turn = true;
    for (int device = 0; device < static_cast<int>(plan.order.size()); ++device)
        for (const Task& task : plan.order[device])
            if (task.op == Op::Forward)
                in_turn &= std::exchange(listed[task.stage][task.microbatch], device) == device;
    if (!in_turn)
        shape.serving = std::move(listed);
}

void run_forwards_as_listed(Plan& plan) {
    std::vector<char> goes_back(static_cast<std::size_t>(plan.shape.stages), 0);
    for (const std::vector<Task>& order : plan.order)
        for (const Task& task : order)
            if (is_backward(task.op))
                goes_back[task.stage] = 1;
    plan.shape.forwards_only.clear();
    if (std::ranges::find(goes_back, 1) == goes_back.end())
        return;
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        if (goes_back[stage] == 0 && std::ranges::all_of(plan.shape.before(stage), [&](int earlier) {
                return plan.shape.runs_forwards_only(earlier);
            }))
            plan.shape.forwards_only.push_back(stage);
}

BackwardForm backward_form(const std::vector<std::vector<Task>>& order) {
    bool whole = false, split = false;
    for (const std::vector<Task>& list : order)
        for (const Task& task : list) {
            whole |= task.op == Op::Backward;
            split |= task.op == Op::BackwardInput;
        }
    return !split ? BackwardForm::Whole : whole ? BackwardForm::Mixed : BackwardForm::Split;
}

bool splits_backward(const Plan& plan) { return backward_form(plan.order) != BackwardForm::Whole; }

namespace {

std::string line_of(const Plan& plan, std::size_t device) {
    std::string text = fmt::format("{}:", device);
    text.reserve(16 * plan.order[device].size());
    bool in_pair = false;
    for (const Task& task : plan.order[device]) {
        text += in_pair ? ";" : task.with_next ? " (" : " ";
        append(text, task);
        if (std::exchange(in_pair, task.with_next))
            text += ')';
    }
    return text += '\n';
}

}  // namespace

std::string print(const Plan& plan) {
    std::string text;
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        text += line_of(plan, device);
    return text;
}

std::string hash_of(const Plan& plan) {
    std::string text =
        fmt::format("{} {} {} {} {} {}\n", plan.shape.devices, plan.shape.stages, plan.shape.microbatches,
                    plan.shape.slices, plan.shape.per_update, name_of(plan.weights));
    if (plan.prediction != Prediction::None)
        text += fmt::format("{}\n", name_of(plan.prediction));
    if (plan.shape.edges && plan.shape.edges->empty() && plan.shape.stages > 1)
        text += "apart ";
    for (const Edge& edge : plan.shape.edges.value_or(std::vector<Edge>{}))
        text += fmt::format("{}>{} ", edge.from, edge.to);
    for (const Edge& tie : plan.shape.ties)
        text += fmt::format("{}={} ", tie.from, tie.to);
    text += plan.shape.global_norm ? "norm\n" : "";
    const std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t*)> hash(XXH64_createState(), XXH64_freeState);
    XXH64_reset(hash.get(), 0);
    XXH64_update(hash.get(), text.data(), text.size());
    for (std::size_t device = 0; device < plan.order.size(); ++device) {
        const std::string line = line_of(plan, device);
        XXH64_update(hash.get(), line.data(), line.size());
    }
    return fmt::format("{:016x}", XXH64_digest(hash.get()));
}

std::vector<Task> inputs_of(const Task& task, const Plan& plan) {
    const PlanGraph graph(plan);
    const int node = graph.find(task);
    if (node < 0)
        fail("plan '{}' has no {}", plan.schedule, print(task));
    std::vector<Task> found;
    for (int input : graph.inputs(node))
        found.push_back(graph.task(input));
    return found;
}

bool has_copies(const std::vector<Task>& order) {
    return std::ranges::any_of(order, [](const Task& task) { return is_copy(task.op); });
}

}  // namespace pw

#include "search/clusters/cluster_bounds.h"

#include "schedules/memory/held.h"
#include "schedules/memory/limits.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/traffic.h"
#include "search/exposed_work.h"
#include "workloads/error.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace pw {

namespace {

using Held = OrderFacts::Held;

// Returns what a device holds when the number of its activations is largest. Among several such moments, the moment
// with most micro-batches on the last stage counts, since the activations of that stage are the largest.
std::vector<Held> most_held(const Tasks& order, std::span<const int> stages, const Shape& shape) {
    std::vector<Held> now;
    std::vector<std::size_t> first(static_cast<std::size_t>(shape.stages), 0);  // by stage, of its slices
    for (const int stage : stages) {
        first[static_cast<std::size_t>(stage)] = now.size();
        for (int slice = 0; slice < shape.slices; ++slice)
            now.push_back({stage, slice});
    }
    std::vector<Held> most = now;
    std::pair<int, int> largest{-1, 0};
    int all = 0;
    for (const Task& task : order) {
        if (is_closing(task.op))
            break;
        Held& own = now[first[static_cast<std::size_t>(task.stage)] +
                        static_cast<std::size_t>(shape.slice_of(task.microbatch))];
        if (is_copy(task.op)) {
            own.away += task.op == Op::Offload ? 1 : -1;
            all += task.op == Op::Offload ? -2 : 2;
        }
        if (saves_first(task.op)) {
            ++own.until_input;
            ++own.until_weight;
            all += 2;
            if (const std::pair size{all, now.back().until_weight}; size > largest) {
                largest = size;
                most = now;
            }
        }
        if (makes_input_gradient(task.op)) {
            --own.until_input;
            --all;
        }
        if (makes_weight_gradient(task.op)) {
            --own.until_weight;
            --all;
        }
    }
    return most;
}

// In a mixed form a stage may have both kinds of backwards, or a single kind.
Bytes workspace_of(const StageBytes& bytes, BackwardForm form) {
    const Bytes split = std::max(bytes.input_workspace, bytes.weight_workspace);
    const Bytes backward = form == BackwardForm::Whole   ? bytes.backward_workspace
                           : form == BackwardForm::Split ? split
                                                         : std::min(split, bytes.backward_workspace);
    return std::max(bytes.forward_workspace, backward);
}

// Returns the bytes of the activations, of slices of this length. `input` brings the stage's input, null for the first
// stage.
Bytes activations_of(const Held& held, const StageBytes& bytes, const EdgeBytes* input, double length) {
    const auto scaled = [&](Bytes whole) { return scaled_bytes(whole, length); };
    Bytes sum = saved_of(held, bytes, length) + held.until_weight * scaled(bytes.data);
    if (input != nullptr)
        sum += scaled(input->forward) * (input->forward_until_weight  ? held.until_weight
                                         : input->forward_until_input ? held.until_input
                                                                      : 0);
    return sum;
}

bool is_offloaded(int stage, const Offloading& offloading) {
    return std::ranges::binary_search(offloading.stages, stage);
}

// What holds for every order: a device holds one micro-batch on all its stages. If the device serves a stage for only
// some micro-batches, it holds one micro-batch on a single stage. What earlier stages saved of it may be on the host.
std::vector<Held> held_in_any_order(const Shape& shape, std::span<const int> stages, const Offloading& offloading) {
    std::vector<Held> held;
    for (const int stage : stages) {
        const int count = held.empty() || shape.devices_of(stage).size() == 1 ? 1 : 0;
        if (count > 0)
            for (Held& earlier : held)
                earlier.away = is_offloaded(earlier.stage, offloading) ? earlier.until_input : 0;
        held.push_back({stage, 0, count, count});
    }
    return held;
}

std::unique_ptr<const OrderFacts> facts_of_any_order(Shape shape, const OrderCopies& copies) {
    auto facts = std::make_unique<OrderFacts>();
    facts->shape = std::move(shape);
    facts->form = BackwardForm::Mixed;
    const ShapeIndex index(facts->shape);
    for (int device = 0; device < facts->shape.devices; ++device)
        facts->held.push_back(held_in_any_order(facts->shape, index.stages_of(device), copies.offloading));
    return facts;
}

// Returns the position after the last backward of the stage whose backwards end first. Only from here on may a device
// run S and U, whose places are not known.
std::ptrdiff_t first_end(const Tasks& order, std::span<const int> stages) {
    std::ptrdiff_t first = std::ssize(order);
    for (const int stage : stages) {
        const auto last = std::find_if(order.rbegin(), order.rend(), [&](const Task& task) {
            return task.stage == stage && makes_weight_gradient(task.op);
        });
        auto end = last.base();
        while (end != order.begin() && end != order.end() && std::prev(end)->with_next)
            ++end;
        first = std::min(first, end - order.begin());
    }
    return first;
}

// Returns the lists with copies.
std::vector<Tasks> with_copies(const Shape& shape, std::vector<Tasks> orders, const Offloading& offloading) {
    Plan plan;
    plan.shape = shape;
    plan.order = std::move(orders);
    add_offloads(plan, offloading);
    return std::move(plan.order);
}

// Counts what leaves the devices. An S or U between F and backward lets more micro-batches leave, and earlier: without
// them the copies are fewest, and with all of them at the first end the fewest micro-batches are on the device before.
void hold_with_copies(OrderFacts& facts, const ShapeIndex& index, const std::vector<Tasks>& orders,
                      const Offloading& offloading) {
    std::vector<Tasks> longer = orders;
    for (int device = 0; device < facts.shape.devices; ++device) {
        Tasks& order = longer[static_cast<std::size_t>(device)];
        const auto stages = index.stages_of(device);
        order.insert(order.begin() + first_end(order, stages), 2 * stages.size(), Task{Op::Update, stages.front(), 0});
    }
    longer = with_copies(facts.shape, std::move(longer), offloading);
    const std::vector<Tasks> fewest = with_copies(facts.shape, orders, offloading);
    for (int device = 0; device < facts.shape.devices; ++device) {
        facts.held.push_back(most_held(longer[static_cast<std::size_t>(device)], index.stages_of(device), facts.shape));
        for (Held& held : facts.held.back())
            held.copied =
                static_cast<int>(std::ranges::count_if(fewest[static_cast<std::size_t>(device)], [&](const Task& task) {
                    return task.op == Op::Offload && task.stage == held.stage;
                }));
    }
}

// The forwards before each stage, and the backwards after its own: by stage, at least.
struct WayOfMicroBatch {
    std::vector<Ns> head{0}, tail{0};
    Ns last_update = 0;  // of the first stage: W, and U
};

WayOfMicroBatch way_of(const OrderFacts& facts, const ShapeIndex& index, const Costs& costs) {
    WayOfMicroBatch way;
    for (int stage = 0; stage < facts.shape.stages; ++stage) {
        const StageTimes least = least_times(facts.form, stage, index.devices_of(stage), costs);
        way.head.push_back(way.head.back() + least.forward);
        way.tail.push_back(way.tail.back() + least.backward);
        if (stage == 0)
            way.last_update = least.weight + least.update;
    }
    return way;
}

// Returns a lower bound on a step in which a device copies: all copies of a lane, from the first F whose tensors leave
// to the last backward whose tensors come back.
Ns least_of_copies(const OrderFacts& facts, int device, const WayOfMicroBatch& way, const Costs& costs,
                   const Traffic& traffic) {
    Ns first = std::numeric_limits<Ns>::max(), last = first, copies = 0;
    for (const Held& held : facts.held[static_cast<std::size_t>(device)]) {
        if (held.copied == 0)
            continue;
        const StageTimes own = stage_times(facts.form, held.stage, device, costs);
        const auto stage = static_cast<std::size_t>(held.stage);
        first = std::min(first, way.head[stage] + own.forward);
        last = std::min(last, own.backward + way.tail[stage] + way.last_update);
        const int ways = facts.copies == TransferMode::Copies::InTurn ? 2 : 1;
        copies += ways * held.copied * time_of_copy({Op::Offload, held.stage, 0}, costs, traffic);
    }
    return copies == 0 ? 0 : first + copies + last;
}

// Stages that run forwards only, and stages without layers, have no time to go back. The former have no task for it,
// whose dispatch would count.
bool has_backward(const StageCost& cost) {
    return cost.backward > 0 || cost.backward_input > 0 || cost.backward_weight > 0;
}

}  // namespace

StageTimes stage_times(BackwardForm form, int stage, int device, const Costs& costs, int slice) {
    const auto time = [&](Op op) { return duration_of(op, stage, device, costs, slice); };
    StageTimes times{time(Op::Forward), time(Op::Backward), 0, time(Op::Update)};
    if (!has_backward(costs.times_on(device).stage[static_cast<std::size_t>(stage)]))
        return {.forward = times.forward};
    if (form == BackwardForm::Whole)
        return times;
    const Ns whole = times.backward;
    times.backward = time(Op::BackwardInput);
    times.weight = time(Op::BackwardWeight);
    if (form == BackwardForm::Mixed) {
        times.backward = std::min(times.backward, whole);
        times.weight = std::min(times.weight, whole - times.backward);
    }
    return times;
}

int served_by(const Shape& shape, const ShapeIndex& index, int device, int stage) {
    if (index.devices_of(stage).size() == 1)
        return shape.microbatches;
    int served = 0;
    for (int mb = 0; mb < shape.microbatches; ++mb)
        served += shape.server_of(stage, mb) == device;
    return served;
}

Bytes saved_of(const OrderFacts::Held& held, const StageBytes& bytes, double length) {
    const auto scaled = [&](Bytes whole) { return scaled_bytes(whole, length); };
    return held.until_input * (scaled(bytes.until_input) + scaled(bytes.first_until_input)) +
           held.until_weight * (scaled(bytes.until_weight) + scaled(bytes.first_until_weight)) +
           (held.until_input - held.away) * scaled(bytes.offloaded_until_input) +
           (held.until_weight - held.away) * scaled(bytes.offloaded_until_weight);
}

Bytes persistent_of(const StageBytes& bytes, const KeptBytes& kept) {
    const HeldState held = held_of_weights(bytes.weights, bytes.weights, kept, 0);
    const StageBytes::Training training = bytes.training.value_or(StageBytes::Training{held.gradients, held.states});
    return bytes.weights + bytes.frozen + bytes.statistics + training.gradients + training.states;
}

std::unique_ptr<const OrderFacts> order_facts(const Schedule& schedule, Shape shape, const ScheduleOptions& options,
                                              const OrderCopies& copies) {
    auto facts = std::make_unique<OrderFacts>();
    std::vector<Tasks> orders;
    refuse_large(shape);
    try {
        facts->shape = placed(schedule, std::move(shape));
        if (schedule.needs_costs)
            return facts_of_any_order(std::move(facts->shape), copies);
        orders = schedule.orders({facts->shape, options, nullptr, &schedule});
    } catch (const Error&) {
        return nullptr;
    }
    facts->form = backward_form(orders);
    facts->copies = copies.lanes;
    const ShapeIndex index(facts->shape);
    for (const Tasks& order : orders)
        facts->pairs |= std::ranges::any_of(order, [](const Task& task) { return task.with_next; });
    if (!copies.offloading.stages.empty())
        hold_with_copies(*facts, index, orders, copies.offloading);
    else
        for (int device = 0; device < facts->shape.devices; ++device)
            facts->held.push_back(
                most_held(orders[static_cast<std::size_t>(device)], index.stages_of(device), facts->shape));
    return facts;
}

StageTimes least_times(BackwardForm form, int stage, std::span<const int> devices, const Costs& costs) {
    StageTimes least = stage_times(form, stage, devices.front(), costs);
    for (const int device : devices.subspan(1)) {
        const StageTimes other = stage_times(form, stage, device, costs);
        least = {std::min(least.forward, other.forward), std::min(least.backward, other.backward),
                 std::min(least.weight, other.weight), std::min(least.update, other.update)};
    }
    return least;
}

// Every micro-batch passes all stages forward and back, in the order of the stages. Forwards of a stage begin with a
// first slice, and backwards end with a first slice.
Ns least_step_time(const OrderFacts& facts, const Costs& costs) {
    const Shape& shape = facts.shape;
    const ShapeIndex index(shape);
    const WayOfMicroBatch way = way_of(facts, index, costs);
    const auto copies = [](const Held& held) { return held.copied > 0; };
    std::optional<Traffic> traffic;
    if (std::ranges::any_of(facts.held, [&](const auto& held) { return std::ranges::any_of(held, copies); }))
        traffic.emplace(shape, index, costs);
    const double exposed = least_exposed(costs, facts.pairs);
    Ns least = 0;
    for (int device = 0; device < shape.devices; ++device) {
        Ns passes = 0, weights = 0, updates = 0;
        for (const int stage : index.stages_of(device)) {
            const int served = served_by(shape, index, device, stage) / shape.slices;
            for (int slice = 0; slice < shape.slices; ++slice) {
                const StageTimes own = stage_times(facts.form, stage, device, costs, slice);
                const Ns forward =
                    exposed == 1 ? own.forward : exposed_work(std::max<Ns>(0, own.forward - costs.dispatch), exposed);
                passes += served * (forward + own.backward);
                weights += served * own.weight;
                updates += slice == 0 ? own.update : 0;
            }
        }
        const auto first = static_cast<std::size_t>(index.stages_of(device).front());
        const Ns back = first == 0 ? 0 : way.tail[first] + way.last_update;
        least = std::max(least, way.head[first] + std::max(passes + back, passes + weights + updates));
        if (traffic)
            least = std::max(least, least_of_copies(facts, device, way, costs, *traffic));
    }
    return least;
}

std::vector<Bytes> least_memory(const OrderFacts& facts, const Costs& costs) {
    std::vector<const EdgeBytes*> input(static_cast<std::size_t>(facts.shape.stages), nullptr);
    for (const EdgeBytes& edge : costs.edges)
        input[static_cast<std::size_t>(edge.to)] = &edge;
    std::vector<Bytes> least;
    for (const std::vector<Held>& on_device : facts.held) {
        Bytes persistent = 0, activations = 0, workspace = 0;
        for (const Held& held : on_device) {
            const StageBytes& bytes = costs.bytes[static_cast<std::size_t>(held.stage)];
            const double length = costs.length_of(held.slice, held.stage).bytes;
            persistent += held.slice == 0 ? persistent_of(bytes, costs.kept) : 0;
            activations += activations_of(held, bytes, input[static_cast<std::size_t>(held.stage)], length);
            workspace = std::max(workspace, workspace_of(workspace_of(bytes, facts.form), bytes, costs, length));
        }
        least.push_back(persistent + activations + workspace);
    }
    return least;
}

}  // namespace pw

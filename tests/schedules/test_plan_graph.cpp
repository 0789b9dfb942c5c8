// The graph of a plan: its look-ups agree with the plan, and it gives the earliest time at which a message can arrive.
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/versions.h"
#include "tests/support/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pw {
namespace {

using Ints = std::vector<int>;

Ints ints(std::span<const int> row) { return {row.begin(), row.end()}; }

void expect_index_of(const Shape& shape) {
    const ShapeIndex index(shape);
    int edges = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
        EXPECT_EQ(ints(index.devices_of(stage)), shape.devices_of(stage));
        EXPECT_EQ(ints(index.before(stage)), shape.before(stage));
        EXPECT_EQ(ints(index.after(stage)), shape.after(stage));
        for (int to = 0; to < shape.stages; ++to) {
            const Ints after = shape.after(stage);
            const bool flows = std::find(after.begin(), after.end(), to) != after.end();
            EXPECT_EQ(index.edge(stage, to), flows ? edges++ : -1) << stage << " to " << to;
        }
    }
    EXPECT_EQ(index.edges(), edges);
    for (int device = 0; device < shape.devices; ++device) {
        EXPECT_EQ(ints(index.stages_of(device)), shape.stages_of(device));
        for (int stage = 0; stage < shape.stages; ++stage) {
            const Ints stages = shape.stages_of(device);
            EXPECT_EQ(index.holds(device, stage), std::find(stages.begin(), stages.end(), stage) != stages.end());
        }
    }
}

TEST(ShapeIndex, AgreesWithTheShape) {
    for (const Replicas& replicas : all_replicas(3))
        expect_index_of(shape_of(replicas, 4));
    for (const Schedule& schedule : schedules())
        expect_index_of(plan_in(schedule, shape_taken(schedule, 3, 4)).shape);
    Shape skips = shape_of(schedule_named("gpipe"), 4, 2);
    skips.edges = std::vector<Edge>{{2, 3}, {0, 3}, {0, 1}, {1, 2}, {0, 2}};
    expect_index_of(skips);
    skips.edges = std::vector<Edge>{};
    expect_index_of(skips);
}

TEST(PlanGraph, ReadersAreTheInverseOfInputs) {
    const PlanGraph graph(plan_of("interleaved", 2, 4, 2));
    std::set<std::pair<int, int>> inputs, readers;
    const Rows read_by = graph.readers();
    for (int node = 0; node < graph.size(); ++node) {
        for (const int input : graph.inputs(node))
            inputs.insert({input, node});
        for (const int reader : read_by[node])
            readers.insert({node, reader});
        EXPECT_TRUE(std::is_sorted(read_by[node].begin(), read_by[node].end()));
    }
    EXPECT_EQ(readers, inputs);
}

// Searches a device's list backwards from an S to the previous U for the last gradients.
int last_gradients_before(const Plan& plan, int device, int position) {
    const std::vector<Task>& order = plan.order[device];
    const int stage = order[position].stage;
    while (--position >= 0)
        if (order[position].stage == stage) {
            if (makes_weight_gradient(order[position].op))
                return position;
            if (order[position].op == Op::Update)
                return -1;
        }
    return -1;
}

TEST(PlanGraph, FindsTheLastGradientsOfASum) {
    int made = 0, none = 0;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "pipedream"})
        for (const Replicas& replicas : all_replicas(3))
            for (const int m : {1, 2, 36}) {
                if (schedule == std::string("pipedream") && m < 36)
                    continue;
                const Plan plan = plan_of(schedule, replicas, m);
                const PlanGraph graph(plan);
                for (int node = 0; node < graph.size(); ++node) {
                    if (graph.task(node).op != Op::SumGradients)
                        continue;
                    const int device = graph.device_of(node);
                    const int position = last_gradients_before(plan, device, graph.position_of(node));
                    const int expected = position < 0 ? -1 : graph.node(device, position);
                    EXPECT_EQ(graph.last_gradients_of(node), expected) << schedule << ' ' << print(graph.task(node));
                    ++(expected < 0 ? none : made);
                }
            }
    EXPECT_GT(made, 1000);
    EXPECT_GT(none, 100);
}

// Returns all tasks that must be done before a node: its inputs, the previous task of its list that computes, and
// theirs.
std::set<int> before(const PlanGraph& graph, int node) {
    std::set<int> seen;
    std::vector<int> open{node};
    while (!open.empty()) {
        const int here = open.back();
        open.pop_back();
        Ints earlier = ints(graph.inputs(here));
        if (!is_transfer(graph.task(here).op))
            for (int position = 0; position < graph.position_of(here); ++position)
                if (const int other = graph.node(graph.device_of(here), position); !is_transfer(graph.task(other).op))
                    earlier.push_back(other);
        for (const int other : earlier)
            if (seen.insert(other).second)
                open.push_back(other);
    }
    return seen;
}

void expect_earliest_landings(const Plan& plan) {
    Costs costs;
    costs.stage.resize(static_cast<std::size_t>(plan.shape.stages));
    costs.bytes.resize(costs.stage.size());
    for (int stage = 0; stage + 1 < plan.shape.stages; ++stage)
        costs.edges.push_back({stage, stage + 1, 64, 64});
    const PlanGraph graph(plan);
    for (const Buffer& buffer : buffers_of(plan, costs, versions_of(plan))) {
        const bool forward = buffer.use == BufferUse::LandingForward;
        if (!forward && buffer.use != BufferUse::LandingBackward)
            continue;
        const EdgeBytes& edge = costs.edges[static_cast<std::size_t>(buffer.edge)];
        const int maker =
            graph.find({forward ? Op::Forward : Op::BackwardInput, forward ? edge.from : edge.to, buffer.microbatch});
        if (graph.device_of(maker) == buffer.device)
            continue;
        int last = -1;
        for (const int node : before(graph, maker))
            if (graph.device_of(node) == buffer.device && !is_transfer(graph.task(node).op))
                last = std::max(last, graph.position_of(node));
        EXPECT_EQ(buffer.first, last + 1) << plan.schedule << ' ' << print(graph.task(maker));
    }
}

TEST(Landings, AreFreeUntilTheirMessageCanArrive) {
    for (const Schedule& schedule : schedules())
        for (const int devices : {3, 5})
            for (const int m : {1, 5, 8})
                expect_earliest_landings(plan_in(
                    schedule, shape_taken(schedule, devices, std::max(m, schedule.asynchronous() ? devices : 1))));
    for (const Replicas& replicas : all_replicas(3))
        expect_earliest_landings(plan_of("1f1b", replicas, 7));
}

}  // namespace
}  // namespace pw

// The tasks of a plan and what they wait for.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/rows.h"
#include "schedules/plan/shape_index.h"

#include <array>
#include <map>
#include <span>
#include <vector>

namespace pw {

// Throws Error (BadInput) with device, position and task if the shape has no such task on that device.
void refuse_foreign(const Task& task, const Plan& plan, const ShapeIndex& index, int device, int position);

// A plan as a graph. Its nodes are positions in the devices' lists, numbered device by device.
class PlanGraph {
public:
    // Throws Error (BadInput) with device, position and task if a list has a task that the shape does not have, a task
    // twice, or a task whose input no device runs.
    explicit PlanGraph(const Plan& plan);

    bool is_of(const Plan& plan) const;  // whether the plan has exactly these lists
    int size() const { return static_cast<int>(tasks_.size()); }
    int node(int device, int position) const { return first_[device] + position; }
    int device_of(int node) const { return device_[node]; }
    int position_of(int node) const { return node - first_[device_[node]]; }
    const Task& task(int node) const { return tasks_[node]; }

    // Returns the nodes that must finish before `node` may start. This is the only implementation of the dependency
    // rule. In a plan with transfers, an input made on another device is this device's RECV. The first task of a pair
    // has the inputs of both.
    std::span<const int> inputs(int node) const { return inputs_[node]; }
    Rows readers() const;  // by node: the nodes that it is an input of, ascending

    // Returns the node of an F, B, I, W, R or transfer. Returns -1 if the plan has none. I and W find B.
    int find(const Task& task) const;
    // Returns the other task of a pair that a node belongs to. Returns -1 for none.
    int paired_with(int node) const;
    // Returns the nodes of an operation that computes on a stage, or of a transfer on an edge, by micro-batch, with -1
    // for none. Empty if the plan does not have the operation. `row` is the number of the stage or edge.
    std::span<const int> nodes(Op op, int row) const {
        const std::vector<int>& table = node_of_[static_cast<std::size_t>(op)];
        const auto width = static_cast<std::size_t>(microbatches_);
        return table.empty() ? std::span<const int>{} : std::span(table).subspan(row * width, width);
    }
    int holder(int stage, int microbatch) const;  // device that lists F(stage, microbatch), or -1
    const ShapeIndex& index() const { return index_; }
    bool has_transfers() const { return has_transfers_; }

    // Returns the nodes with inputs first and tasks that compute in the order of their lists. An early RECV delays only
    // its reader, wherever it is in the list. The result has fewer than size() nodes if there is a cycle.
    std::vector<int> topological_order() const;

    // Returns the input of an S that makes the last gradients of its stage on its own device. Returns -1 if there is
    // none.
    int last_gradients_of(int sum) const;

private:
    int row_of(const Task& task) const;  // -1 for a transfer between stages without an edge
    int& cell_of(const Task& task);
    int at_cell_of(const Task& task) const;
    int find_in_shape(const Task& task) const;  // find() of a task whose stages and micro-batch exist
    void add_nodes(const Plan& plan);
    void connect(const Plan& plan);
    void connect_barriers(const Plan& plan);
    template <class Visit>
    void visit_inputs(const Task& task, int device, Visit visit) const;

    int stages_ = 0, microbatches_ = 0, slices_ = 1;
    ShapeIndex index_;
    bool has_transfers_ = false;
    std::vector<Task> tasks_;
    std::vector<int> device_, first_;
    // node_of_[op][stage or edge][micro-batch], or -1. Empty for operations that the plan does not have.
    std::array<std::vector<int>, kOps> node_of_;
    std::map<Task, int> off_edges_;  // transfers between stages without an edge, for check() to refuse
    Rows inputs_;
};

}  // namespace pw

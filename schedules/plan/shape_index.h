// The stages, devices and edges of a shape, computed once for frequent use.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/rows.h"

#include <algorithm>
#include <span>
#include <vector>

namespace pw {

class ShapeIndex {
public:
    explicit ShapeIndex(const Shape& shape);

    // Same results as the functions of Shape with these names.
    std::span<const int> devices_of(int stage) const { return holders_[stage]; }
    std::span<const int> stages_of(int device) const { return stages_[device]; }
    std::span<const int> before(int stage) const { return before_[stage]; }
    std::span<const int> after(int stage) const { return after_[stage]; }
    // Returns the stages at the other ends of a stage's transfers of an operation. Gradients go from and to stages
    // with a backward.
    std::span<const int> peers_of(Op transfer, int stage) const {
        const bool from = facts_of(transfer).peers == PeerStages::Before;
        return carries_gradients(transfer) ? (from ? gradients_to_ : gradients_from_)[stage]
                                           : (from ? before_ : after_)[stage];
    }

    // Returns the stages that a stage is joined with, with itself. Empty if it is not joined.
    std::span<const int> joined_with(int stage) const {
        return std::ranges::binary_search(joined_, stage) ? std::span<const int>(joined_) : std::span<const int>{};
    }

    bool holds(int device, int stage) const;
    // Returns the index of a stage among those of a device that holds it.
    std::size_t row_of(int device, int stage) const;
    // Returns the number of an edge, from 0; -1 if no tensor flows between the stages. Edges are numbered by the stage
    // they leave, then by the stage they enter.
    int edge(int from, int to) const;
    int edges() const { return after_.items(); }

private:
    Rows holders_, stages_, before_, after_;
    std::vector<int> joined_;
    Rows gradients_to_, gradients_from_;  // the stages of before_ and after_ that a stage sends or receives gradients
};

}  // namespace pw

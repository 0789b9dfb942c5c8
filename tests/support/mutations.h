// Plans broken at random, and whether the result is still a plan.
#pragma once

#include "schedules/plan/plan.h"

#include <algorithm>
#include <random>
#include <vector>

namespace pw {

struct Mutation {
    Plan plan;
    Task culprit;  // as it is in the plan, or was before it was removed
};

class Mutator {
public:
    explicit Mutator(std::uint32_t seed) : random_(seed) {}

    Mutation mutate(const Plan& original) {
        Mutation mutation{original, {}};
        std::vector<Task>* order = nullptr;
        do
            order = &mutation.plan.order[below(mutation.plan.order.size())];
        while (order->empty());
        const std::size_t at = pick(*order);
        mutation.culprit = (*order)[at];
        switch (below(10)) {
            case 0:
                order->erase(order->begin() + static_cast<std::ptrdiff_t>(at));
                break;
            case 1:
                insert(*order, (*order)[at]);
                break;
            case 2:
                mutation.culprit = (*order)[at] = changed((*order)[at], original.shape);
                break;
            case 3: {
                const Task task = take(*order, at);
                insert(mutation.plan.order[below(mutation.plan.order.size())], task);
                break;
            }
            default:  // mostly moved: the most interesting ones
                insert(*order, take(*order, at));
        }
        return mutation;
    }

private:
    std::size_t below(std::size_t bound) { return random_() % bound; }

    // Picks a task to break, mostly a transfer.
    std::size_t pick(const std::vector<Task>& order) {
        std::size_t at = below(order.size());
        for (int tries = 0; tries < 8 && !is_transfer(order[at].op); ++tries)
            at = below(order.size());
        return at;
    }
    Task take(std::vector<Task>& order, std::size_t at) {
        const Task task = order[at];
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(at));
        return task;
    }
    void insert(std::vector<Task>& order, const Task& task) {
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size() + 1)), task);
    }
    // Returns the task with another micro-batch, stage or peer, often out of range.
    Task changed(Task task, const Shape& shape) {
        const auto other = [&](int value, int count) {
            return (value + 1 + static_cast<int>(below(3))) % (count + 2) - 1;
        };
        switch (below(3)) {
            case 0:
                task.microbatch = other(task.microbatch, shape.microbatches);
                break;
            case 1:
                task.stage = other(task.stage, shape.stages);
                break;
            default:
                (task.peer < 0 ? task.microbatch : task.peer) = shape.stages + shape.microbatches;
        }
        return task;
    }
    std::mt19937 random_;
};

// Returns whether the oracle can judge the plan: it has the tasks of the original plan, each once and on its device,
// and on every device the inputs of a task before the task.
inline bool is_well_formed(const Plan& plan, const Plan& original) {
    for (std::size_t device = 0; device < plan.order.size(); ++device) {
        std::vector<Task> tasks = plan.order[device], wanted = original.order[device];
        std::sort(tasks.begin(), tasks.end());
        std::sort(wanted.begin(), wanted.end());
        if (tasks != wanted)
            return false;
        const auto at = [&](const Task& task) {
            const auto& order = plan.order[device];
            return std::find(order.begin(), order.end(), task) - order.begin();
        };
        const auto in_order = [&](const Task& first, const Task& second) {
            const auto size = static_cast<std::ptrdiff_t>(tasks.size());
            return at(first) == size || at(second) == size || at(first) < at(second);
        };
        for (const Task& task : tasks) {
            const int s = task.stage, mb = task.microbatch;
            bool fine = true;
            if (task.op == Op::Forward)
                fine = in_order({Op::RecvForward, s, mb, 0, s - 1}, task) && in_order({Op::Forward, s - 1, mb}, task);
            if (makes_input_gradient(task.op))
                fine = in_order({Op::Forward, s, mb}, task) && in_order({Op::RecvBackward, s, mb, 0, s + 1}, task) &&
                       in_order({task.op, s + 1, mb}, task);
            if (task.op == Op::BackwardWeight)
                fine = in_order({Op::BackwardInput, s, mb}, task);
            if (task.op == Op::SendForward)
                fine = in_order({Op::Forward, s, mb}, task);
            if (task.op == Op::SendBackward)
                fine = in_order({Op::Backward, s, mb}, task) && in_order({Op::BackwardInput, s, mb}, task);
            if (task.op == Op::Update || task.op == Op::SumGradients)
                for (int other = 0; other < plan.shape.microbatches; ++other)
                    fine = fine && in_order({Op::Backward, s, other}, task) &&
                           in_order({Op::BackwardWeight, s, other}, task);
            if (task.op == Op::Update)
                fine = fine && in_order({Op::SumGradients, s, mb}, task);
            if (!fine)
                return false;
        }
    }
    return true;
}

}  // namespace pw

#include "schedules/orders/own_order.h"

#include "schedules/orders/order_costs.h"
#include "schedules/orders/order_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {

namespace {

// Exchanges that are tried, and the effort with which the tasks of each are ordered.
constexpr double kMostExchanges = 300, kPassesOfExchanges = 2e5, kEffortOfExchange = 0.02;

using Permutation = std::vector<int>;  // by position: a micro-batch

class OwnOrder {
public:
    OwnOrder(const Request& request, const OrderTasks& order)
        : request_(request), order_(order), microbatches_(request.shape.microbatches) {
        const double passes = 3.0 * request.shape.stages * microbatches_;
        left_ = static_cast<int>(request.options.effort * std::clamp(kPassesOfExchanges / passes, 1.0, kMostExchanges));
    }

    std::vector<Tasks> tasks() {
        const std::vector<Permutation> starts = all_starts();
        Permutation best;
        StepTimes least;
        for (const Permutation& start : starts)
            take(start, best, least);
        exchange(best, least);
        Found shortest = found(best);
        for (const Permutation& start : starts)
            if (Found other = found(start); is_shorter(other.times, shortest.times, request_.options.aim))
                shortest = std::move(other);
        return shortest.tasks;
    }

private:
    // The given order; the shortest first, the longest first, and the longest or the shortest in the middle.
    std::vector<Permutation> all_starts() const {
        Permutation given(static_cast<std::size_t>(microbatches_));
        std::iota(given.begin(), given.end(), 0);
        const auto work = [this](int mb) {
            Ns sum = 0;
            for (const auto& [holder, of_classes] : request_.costs->times) {
                const OrderCosts::Times& times = of_classes[request_.costs->class_of(mb)];
                sum += times.forward + times.backward_input + times.backward_weight;
            }
            return sum;
        };
        Permutation up = given;
        std::stable_sort(up.begin(), up.end(), [&](int one, int other) { return work(one) < work(other); });
        const Permutation down(up.rbegin(), up.rend());
        const auto outwards = [](const Permutation& from) {
            Permutation out(from.size());
            std::size_t first = 0, last = from.size();
            for (std::size_t k = 0; k < from.size(); ++k)
                out[k % 2 == 0 ? first++ : --last] = from[k];
            return out;
        };
        return {given, up, down, outwards(up), outwards(down)};
    }

    void exchange(Permutation& best, StepTimes& least) {
        for (bool helps = true; helps && left_ > 0;) {
            helps = false;
            for (std::size_t apart = 1; apart < best.size(); ++apart)
                for (std::size_t at = 0; at + apart < best.size() && left_ > 0; ++at) {
                    Permutation other = best;
                    std::swap(other[at], other[at + apart]);
                    --left_;
                    helps = take(other, best, least) || helps;
                }
        }
    }

    bool take(const Permutation& other, Permutation& best, StepTimes& least) const {
        const StepTimes times = times_of(other);
        if (!is_shorter(times, least, request_.options.aim))
            return false;
        best = other;
        least = times;
        return true;
    }

    StepTimes times_of(const Permutation& permutation) const {
        return timed(tasks_of(permutation, std::min(kEffortOfExchange, request_.options.effort), false));
    }

    std::vector<Tasks> tasks_of(const Permutation& permutation, double effort, bool simulates) const {
        OrderCosts costs = *request_.costs;
        costs.classes.clear();
        for (const int mb : permutation)
            costs.classes.push_back(static_cast<int>(request_.costs->class_of(mb)));
        const auto named = [&permutation](std::vector<Tasks> tasks) {
            for (Tasks& list : tasks)
                for (Task& task : list)
                    task.microbatch = permutation[task.microbatch];
            return tasks;
        };
        if (simulates && costs.simulate)
            costs.simulate = [&](const std::vector<Tasks>& tasks) { return request_.costs->simulate(named(tasks)); };
        else
            costs.simulate = {};
        Request own{request_.shape, request_.options, &costs};
        own.options.effort = effort;
        return named(order_(own));
    }

    StepTimes timed(const std::vector<Tasks>& tasks) const {
        const OrderModel model(request_);
        return OrderTimer(model).times(model.lists_of(tasks));
    }

    struct Found {
        std::vector<Tasks> tasks;
        StepTimes times;
    };
    Found found(const Permutation& permutation) const {
        std::vector<Tasks> tasks = tasks_of(permutation, request_.options.effort, true);
        if (!request_.costs->simulate)
            return {tasks, timed(tasks)};
        const SimulatedOrder order = request_.costs->simulate(tasks);
        return {std::move(tasks), order.fits ? order.times : StepTimes{}};
    }

    const Request& request_;
    const OrderTasks& order_;
    int microbatches_, left_;
};

}  // namespace

std::vector<Tasks> in_own_order(const Request& request, const OrderTasks& order) {
    return OwnOrder(request, order).tasks();
}

}  // namespace pw

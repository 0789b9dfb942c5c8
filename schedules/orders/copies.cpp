#include "schedules/orders/copies.h"

#include "schedules/orders/order_costs.h"
#include "workloads/error.h"

#include <optional>
#include <string>
#include <utility>

namespace pw {

Shape copy_of(const Schedule& schedule, const Shape& shape, int copy) {
    if (shape.copies == 1)
        return shape;
    Shape one = shape;
    one.devices /= shape.copies;
    const int whole = shape.whole_of(shape.microbatches);
    one.microbatches = (whole - copy + shape.copies - 1) / shape.copies * shape.slices;
    one.copies = 1;
    one.placement.clear();
    one.serving.clear();
    place_stages(schedule, one);
    return one;
}

std::vector<std::vector<int>> on_copies(const std::vector<std::vector<int>>& devices, int copies) {
    std::vector<std::vector<int>> all;
    for (const std::vector<int>& list : devices) {
        std::vector<int>& copied = all.emplace_back();
        for (const int device : list)
            for (int copy = 0; copy < copies; ++copy)
                copied.push_back(device * copies + copy);
    }
    return all;
}

namespace {

// Throws what `use` throws, with the number of the copy.
template <class Use>
auto of_copy(int copy, int copies, Use use) {
    try {
        return use();
    } catch (const Error& error) {
        if (copies == 1)
            throw;
        const std::string help = error.help().empty() ? "" : fmt::format("\n  help: in each replica: {}", error.help());
        throw Error(error.code(), fmt::format("replica {} of {}: {}{}", copy, copies, error.fact(), help),
                    error.settings());
    }
}

std::vector<Tasks> orders_of_copy(const Schedule& schedule, const Shape& one, const Request& request,
                                  const OrderCosts* costs, int copy) {
    if (one.microbatches == 0)
        return std::vector<Tasks>(static_cast<std::size_t>(one.devices));
    return of_copy(copy, request.shape.copies, [&] {
        return schedule.orders({one, request.options, costs, &schedule});
    });
}

// Gives the devices of a copy the lists of a pipeline.
void add_copy(std::vector<Tasks>& all, const std::vector<Tasks>& lists, const Shape& one, int copy, int copies) {
    for (int device = 0; device < one.devices; ++device) {
        Tasks& own = all[device * copies + copy] = lists[device];
        for (Task& task : own)
            task.microbatch = (one.whole_of(task.microbatch) * copies + copy) * one.slices + task.slice();
    }
}

// Returns the costs of a copy. The copy can be simulated with the rest if all copies have its order.
OrderCosts costs_of_one(const Schedule& schedule, const Request& request) {
    const int copies = request.shape.copies;
    OrderCosts costs = costs_of_copies(*request.costs, copies);
    const Shape one = copy_of(schedule, request.shape, 0);
    if (request.costs->simulate && copy_of(schedule, request.shape, copies - 1).microbatches == one.microbatches)
        costs.simulate = [&request, one, copies](const std::vector<Tasks>& lists) {
            std::vector<Tasks> all(static_cast<std::size_t>(request.shape.devices));
            for (int copy = 0; copy < copies; ++copy)
                add_copy(all, lists, one, copy, copies);
            return request.costs->simulate(all);
        };
    return costs;
}

}  // namespace

void check_copies(const Schedule& schedule, const Shape& shape) {
    for (int copy = 0; copy < shape.copies && schedule.placement.check != nullptr; ++copy)
        if (const Shape one = copy_of(schedule, shape, copy); one.microbatches > 0 || shape.copies == 1)
            of_copy(copy, shape.copies, [&] { schedule.placement.check(one); });
}

// Copies with equally many micro-batches have the same order.
std::vector<Tasks> orders_of(const Schedule& schedule, const Request& request) {
    const int copies = request.shape.copies;
    if (copies == 1)
        return schedule.orders(request);
    std::optional<OrderCosts> costs;
    if (request.costs != nullptr)
        costs = costs_of_one(schedule, request);
    std::vector<Tasks> all(static_cast<std::size_t>(request.shape.devices)), lists;
    for (int copy = 0, served = -1; copy < copies; ++copy) {
        const Shape one = copy_of(schedule, request.shape, copy);
        if (std::exchange(served, one.microbatches) != one.microbatches)
            lists = orders_of_copy(schedule, one, request, costs ? &*costs : nullptr, copy);
        add_copy(all, lists, one, copy, copies);
    }
    return all;
}

}  // namespace pw

#include "schedules/orders/copies.h"

#include "schedules/orders/order_costs.h"
#include "workloads/error.h"

#include <utility>

namespace pw {

Shape copy_of(const Schedule& schedule, const Shape& shape, int copy) {
    if (shape.copies == 1)
        return shape;
    Shape one = shape;
    one.devices /= shape.copies;
    one.microbatches = (shape.microbatches - copy + shape.copies - 1) / shape.copies;
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

std::vector<Tasks> orders_of_copy(const Schedule& schedule, const Request& request, int copy) {
    const int copies = request.shape.copies;
    const Shape one = copy_of(schedule, request.shape, copy);
    if (one.microbatches == 0)
        return std::vector<Tasks>(static_cast<std::size_t>(one.devices));
    OrderCosts costs;
    if (request.costs != nullptr)
        costs = costs_of_copy(*request.costs, copies, copy);
    try {
        return schedule.orders({one, request.options, request.costs != nullptr ? &costs : nullptr});
    } catch (const Error& error) {
        const std::string help = error.help().empty() ? "" : fmt::format("\n  help: in each replica: {}", error.help());
        throw Error(error.code(), fmt::format("replica {} of {}: {}{}", copy, copies, error.fact(), help),
                    error.settings());
    }
}

}  // namespace

std::vector<Tasks> orders_of(const Schedule& schedule, const Request& request) {
    const int copies = request.shape.copies;
    if (copies == 1)
        return schedule.orders(request);
    std::vector<Tasks> all(static_cast<std::size_t>(request.shape.devices));
    for (int copy = 0; copy < copies; ++copy) {
        std::vector<Tasks> lists = orders_of_copy(schedule, request, copy);
        for (std::size_t device = 0; device < lists.size(); ++device) {
            for (Task& task : lists[device])
                task.microbatch = task.microbatch * copies + copy;
            all[device * static_cast<std::size_t>(copies) + static_cast<std::size_t>(copy)] = std::move(lists[device]);
        }
    }
    return all;
}

}  // namespace pw

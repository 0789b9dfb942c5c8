#include "schedules/orders/kept_order.h"

#include "schedules/orders/order_model.h"

#include <utility>

namespace pw {

std::vector<Tasks> shorter_order(const Request& request, std::vector<Tasks> found, const std::vector<Tasks>& current) {
    const OrderModel model(request);
    OrderTimer timer(model);
    const auto outcome = [&](const std::vector<Tasks>& order) {
        const PassLists lists = model.lists_of(order);
        SimulatedOrder own =
            request.costs->simulate ? request.costs->simulate(order) : SimulatedOrder{timer.times(lists)};
        own.fits = own.fits && fits(model, lists);
        return own;
    };
    const SimulatedOrder kept = outcome(current), other = outcome(found);
    const bool keeps = kept.fits && (!other.fits || !is_shorter(other.times, kept.times, request.options.aim));
    return keeps ? current : std::move(found);
}

}  // namespace pw

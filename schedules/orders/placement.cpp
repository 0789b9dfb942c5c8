#include "schedules/orders/placement.h"

#include <algorithm>

namespace pw {

int any_stages(int stages, int /*devices*/) { return stages; }

int one_per_device(int /*stages*/, int devices) { return devices; }

int equally_many_per_device(int stages, int devices) {
    return stages % devices == 0 ? stages : std::max(1, (stages + devices / 2) / devices) * devices;
}

int two_per_device(int /*stages*/, int devices) { return 2 * devices; }

void place_in_v(Shape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage)
        shape.placement.push_back({stage < shape.devices ? stage : 2 * shape.devices - 1 - stage});
}

}  // namespace pw

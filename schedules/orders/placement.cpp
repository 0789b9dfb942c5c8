#include "schedules/orders/placement.h"

#include <algorithm>

namespace pw {

int any_stages(int stages, int /*devices*/) { return stages; }

int one_per_device(int /*stages*/, int devices) { return devices; }

int equally_many_per_device(int stages, int devices) {
    return stages % devices == 0 ? stages : std::max(1, (stages + devices / 2) / devices) * devices;
}

int two_per_device(int /*stages*/, int devices) { return 2 * devices; }

int device_in_waves(int stage, int devices) {
    const int device = stage % devices;
    return stage / devices % 2 == 0 ? device : devices - 1 - device;
}

void place_in_waves(Shape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage)
        shape.placement.push_back({device_in_waves(stage, shape.devices)});
}

}  // namespace pw

#include "schedules/orders/placement.h"

#include "workloads/error.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pw {

int any_stages(int stages, int /*devices*/) { return stages; }

int one_per_device(int /*stages*/, int devices) { return devices; }

int equally_many_per_device(int stages, int devices) {
    return stages % devices == 0 ? stages : std::max(1, (stages + devices / 2) / devices) * devices;
}

int two_per_device(int /*stages*/, int devices) { return 2 * devices; }

int Placement::listed_devices() const { return devices.empty() ? 0 : *std::ranges::max_element(devices) + 1; }

bool Placement::fits(int stages, int on_devices) const {
    return devices.empty() ? nearest(stages, on_devices) == stages
                           : std::cmp_equal(stages, devices.size()) && on_devices == listed_devices();
}

int device_in_waves(int stage, int devices) {
    const int device = stage % devices;
    return stage / devices % 2 == 0 ? device : devices - 1 - device;
}

void place_in_waves(Shape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage)
        shape.placement.push_back({device_in_waves(stage, shape.devices)});
}

void place_in_both_directions(Shape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
        const int down = stage, up = shape.devices - 1 - stage;
        const auto [first, second] = std::minmax(down, up);
        shape.placement.push_back(first == second ? std::vector<int>{first} : std::vector<int>{first, second});
        shape.serving.push_back({down, up});
    }
}

void check_both_directions(const Shape& shape) {
    if (const int p = shape.devices; p % 2 != 0)
        fail_about({Setting::Devices},
                   "two copies of the model in opposite directions need an even number of devices: this is {}\n  help: "
                   "take {}{} devices",
                   p, p > 1 ? std::to_string(p - 1) + " or " : "", p + 1);
    if (shape.microbatches < 2)
        fail_about({Setting::MicroBatches},
                   "two copies of the model in opposite directions need a micro-batch each: this is {}\n  help: take 2 "
                   "micro-batches or more",
                   shape.microbatches);
}

}  // namespace pw

// How schedules place stages on devices. A placement is a row. A schedule may bring its own placement.
#pragma once

#include "schedules/plan/plan.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace pw {

struct Placement {
    std::string_view name;         // as printed by `list schedules`
    std::string_view each_device;  // in errors, what a device gets: "one stage"
    // Returns the number of stages nearest to `stages` that it can place on the devices: `stages` itself if they fit.
    int (*nearest)(int stages, int devices);
    // Sets the placement of a shape whose stages fit, and Shape::serving where holders do not take turns. When null,
    // stage s is on device s mod devices.
    void (*place)(Shape& shape) = nullptr;
    // Whether the config may give each stage its own number of holders instead. A device then has one stage.
    bool replicas = false;
    // When not null, throws Error (BadInput) for a pipeline that it cannot place, although its stages fit.
    void (*check)(const Shape& one) = nullptr;

    // Where stages are no chain: sets the edges of a placed shape that has none, and Shape::joined.
    void (*link)(Shape& shape) = nullptr;
    // The device of each stage, where a schedule lists them instead: from 0, each device at least once.
    std::span<const int> devices = {};

    // Whether the first and the last layer are divided among all devices: stages d, d + p and d + 2p of device d are
    // its part of the first layer, its layers between the two and its part of the last layer.
    bool divides_ends() const { return link != nullptr; }
    // Returns the number of devices that the list has, or 0 without a list.
    int listed_devices() const;
    bool fits(int stages, int on_devices) const;
};

int any_stages(int stages, int devices);
int one_per_device(int stages, int devices);
int equally_many_per_device(int stages, int devices);
int two_per_device(int stages, int devices);
// Stages go down the devices and up again as often as needed: stage s is on device s mod p on the way down, p - 1 - s
// mod p on the way up.
int device_in_waves(int stage, int devices);
void place_in_waves(Shape& shape);
// Two copies of the model in opposite directions: stage s is on devices s and p - 1 - s. Even micro-batches enter at
// the first device, odd micro-batches at the last.
void place_in_both_directions(Shape& shape);
// Throws Error (BadInput) with the nearest legal numbers unless the number of devices is even, so that no device holds
// the same stage in both directions, and each direction has a micro-batch.
void check_both_directions(const Shape& shape);

// Any number of stages, stage s on device s mod p.
inline constexpr Placement kAnyPlacement{"any", "", any_stages, nullptr, true};
// Stage d on device d.
inline constexpr Placement kLinear{"linear", "one stage", one_per_device, nullptr, true};
// Stages d, d + p, d + 2p, ... on device d.
inline constexpr Placement kLooped{"looped", "equally many stages", equally_many_per_device};
// Stages d and 2p - 1 - d on device d.
inline constexpr Placement kV{"V", "two stages", two_per_device, place_in_waves};
// Stages d and p - 1 - d on device d, each stage on two devices.
inline constexpr Placement kBothDirections{
    "both directions",    "two stages, one of each direction,", one_per_device, place_in_both_directions, false,
    check_both_directions};

}  // namespace pw

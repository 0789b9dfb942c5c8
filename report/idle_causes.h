// The causes of idle time by name, in the order of tables.
#pragma once

#include "sim/explanation.h"

#include <iterator>

namespace pw {

struct IdleCauseName {
    const char *title, *key, *words;
    Ns IdleCauses::*time;
};
inline constexpr IdleCauseName kIdleCauses[] = {
    {"warm-up", "warm_up_ns", "before the device's first task", &IdleCauses::warm_up},
    {"cool-down", "cool_down_ns", "after the device's last task", &IdleCauses::cool_down},
    {"updates", "updates_ns", "in sums of gradients and updates", &IdleCauses::updates},
    {"dependency", "dependency_ns", "until another device has computed an input of the next task",
     &IdleCauses::dependency},
    {"imbalance", "imbalance_ns", "the part of such waits that equal stages would save", &IdleCauses::imbalance},
    {"lane", "lane_ns", "an input could be sent or taken in, but the lane or the receiver is not free",
     &IdleCauses::lane},
    {"data", "data_ns", "an input of the next task is under way", &IdleCauses::data},
    {"host copies", "host_copy_ns", "until a copy to or from the host has ended", &IdleCauses::host_copy},
    {"exchange", "exchange_ns", "until the rest of an exchange that blocks is complete", &IdleCauses::exchange},
    {"dispatcher", "dispatcher_ns", "the host's dispatcher issues calls of other devices", &IdleCauses::dispatcher},
    {"copy of a send", "send_memory_ns", "until the copy of an earlier tensor has been sent", &IdleCauses::send_memory},
};
inline constexpr int kNumberOfIdleCauses = static_cast<int>(std::size(kIdleCauses));

}  // namespace pw

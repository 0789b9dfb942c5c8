// Orders passes by simulating devices that always run the pass that can begin first.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// How a device chooses among passes that could begin at the same time, and when it waits.
struct OrderRules {
    // A device runs up to 1 + ahead * round trip to the last stage / work forwards ahead of their I, rounded up: 1 is
    // about 1F1B's warm-up. Undelayed: 1 + ahead * round trip / forward, rounded down, so that with 1 no forward delays
    // the first I.
    double ahead = 1;
    bool undelayed = false;
    bool forward_first = false;  // of an F and an I
    bool whole = false;          // I and W are one B
    // W waits while fewer W are left than fill this share of the time from the start of a step to the device's first F,
    // and from its last I to the end: the W run there.
    double lag = 0;
    double patience = 0;  // W may delay the next known pass by this share of its own time
    // W also delays the next pass where the device would otherwise have waited longer than all devices except itself
    // ("Zero Bubble Pipeline Parallelism", section 3).
    bool level = false;
    // Which F a device with several stages runs. Oldest: F of the oldest micro-batch. InOrder: the same, and younger
    // micro-batches leave the room that older micro-batches still need there. Apart, LastApart: F of the oldest
    // micro-batch, or of the last stage. Each stage runs ahead by itself, and the stages share the room by their round
    // trips.
    enum class Stages { Oldest, InOrder, Apart, LastApart } stages = Stages::Oldest;
};

// Exceptions from the rules, by device and position in its list: the kind of pass that runs there, and its stage, if
// such a pass has its inputs and keeps the limits. Each device has an entry more than passes.
using PassKind = signed char;  // 0: F, 1: I, 2: W, plus three times the position in OrderModel::stages_on()
constexpr PassKind kByRules = -1;
using Exceptions = std::vector<std::vector<PassKind>>;

// Returns lists that keep the model's limits. Whatever the limits are, no device waits forever. A device leaves the
// first micro-batch that has F left on it the room of a whole micro-batch, besides what younger ones hold. So the
// oldest micro-batch of all finds room wherever it still needs some.
PassLists scheduled(const OrderModel& model, const OrderRules& rules, const Exceptions* exceptions = nullptr);
// Returns lists with F and I in the order of `lists`, which keep the limits, and W by the rules. The micro-batches of a
// stage run in order. Returns none if devices would then wait forever.
PassLists refilled(const OrderModel& model, const OrderRules& rules, const PassLists& lists);

}  // namespace pw

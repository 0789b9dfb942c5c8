// What a schedule, by name or in a file, says of a setup that does not.
#pragma once

namespace pw {

// The defaults that follow from the schedule: stages per device, or, if the schedule is a file, all numbers of its
// plan. 0 means not known.
struct PlanDefaults {
    int chunks = 1;
    int stages = 0, devices = 0, micro_batches = 0;
};

}  // namespace pw

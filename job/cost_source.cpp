#include "job/cost_source.h"

#include "job/rules.h"
// The memory bounds an update: one by another optimizer than the profile's takes the time of its own passes.

// CUPTI's records of a GPU's work: a second source besides the executor's own events.
#pragma once

#include "workloads/units.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

struct Record {
    enum class Kind { Kernel, Fill, Copy } kind;
    std::uint64_t stream;  // any number, one per stream
    Ns start, end;         // clock_now()'s, as CUPTI converts the GPU's
    std::string name;      // of a kernel
};

// Before the first work on the GPU. Throws Error (RunFailed).
void start_recording();
// Waits until the records of all finished work have arrived.
void flush_records();
// After the last flush, by start.
std::vector<Record> take_records();
std::int64_t dropped_records();

}  // namespace pw

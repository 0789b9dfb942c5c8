// The config in a trace, and what checks of the trace read of it.
#pragma once

#include "job/job.h"
#include "schedules/trace/trace.h"

namespace pw {

// Adds the config and its facts to a trace, of which the hosts of the devices are one. The config has the dispatch and
// the hosts of shared dispatchers, wherever the job has them from.
void add_config(Trace& trace, const Job& job);

// The rules by which the tasks of a trace wait for each other. For a trace without a config they are the defaults.
struct TraceRules {
    TransferMode mode;         // as it was executed
    bool global_norm = false;  // updates wait for all gradients
    Costs costs = {};          // the lengths of micro-batches, and of shared dispatchers the dispatch and the hosts
};
TraceRules trace_rules(const Trace& trace);

}  // namespace pw

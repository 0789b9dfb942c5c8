#include "search/predict.h"

#include "sim/simulate.h"
#include "workloads/beyond_limit.h"

namespace pw {

Trace predict(const Job& job) {
    check_precision(job.config, job.profile);
    Trace trace = at_its_place(job.config, [&] { return simulate(job.plan, job.costs, job.mode); });
    tell_config(trace, job.config);
    return trace;
}

}  // namespace pw

#include "exec/interleaved.h"

#include "exec/probes.h"
#include "exec/turns.h"

namespace pw {

namespace {

// Metrics leave out the first step of all by themselves.
void leave_out_first_steps(Trace& trace, int steps, int turns) {
    std::erase_if(trace.events,
                  [&](const TraceEvent& event) { return event.step > 0 && begins_turn(event.step, steps, turns); });
}

}  // namespace

bool can_interleave(const Job& job) {
    const RunConfig::Backend backend = job.config.run.backend;
    return job.model && (backend == RunConfig::Backend::Cpu || backend == RunConfig::Backend::Reference);
}

InterleavedRun run_interleaved(const Job& job, int turns, const RunOptions& options) {
    InterleavedRun interleaved;
    const int steps = steps_of(job);
    interleaved.turns = job.plan.asynchronous ? turns : turns_of(steps, turns);
    const Probes probes = probes_of(job, interleaved.turns);
    const auto between = [&] {
        interleaved.yardstick.times.push_back(
            yardstick_time(job.plan.shape.devices, job.config.run.threads_per_device));
    };
    std::vector<std::vector<RunResult>> results =
        run_in_turns({{&probes.alone}, {&job, options}, {&probes.together}}, interleaved.turns, between);
    interleaved.calibration =
        calibrate(job, {{&probes.alone, std::move(results[0].front().trace), interleaved.turns},
                        {&probes.together, std::move(results[2].front().trace), interleaved.turns}});
    interleaved.runs = std::move(results[1]);
    if (!job.plan.asynchronous)
        leave_out_first_steps(interleaved.runs.front().trace, steps, interleaved.turns);
    return interleaved;
}

}  // namespace pw

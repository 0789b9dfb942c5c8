#include "exec/measuring/interleaved.h"

#include "exec/engine/ranks_of_run.h"
#include "exec/measuring/probes.h"
#include "exec/measuring/turns.h"

#include <algorithm>
#include <memory>

namespace pw {

namespace {

std::vector<Trace> traces_of(std::vector<RunResult> results) {
    std::vector<Trace> traces;
    for (RunResult& result : results)
        traces.push_back(std::move(result.trace));
    return traces;
}

// Metrics already leave out the very first step.
void leave_out_first_steps(Trace& trace, int steps, int turns) {
    std::erase_if(trace.events,
                  [&](const TraceEvent& event) { return event.step > 0 && begins_turn(event.step, steps, turns); });
}

// Every turn leaves out its first step.
void require_second_step(const std::vector<RunResult>& of_probe) {
    if (of_probe.empty() || of_probe.front().stopped_after == 1)
        fail_with(ExitCode::RunFailed, "the run was stopped before its probes had run two steps");
}

// The time of the slowest rank.
Ns slowest_reference_work(const CorePlan& cores, Ranks& ranks) {
    const Ns own = reference_work_time(cores);
    Message message;
    write(message, own);
    Ns slowest = 0;
    for (const Message& other : all_gather(ranks, message))
        slowest = std::max(slowest, MessageReader(other).read<Ns>());
    return slowest;
}

}  // namespace

bool can_interleave(const Job& job) {
    const RunConfig::Backend backend = job.setup.run.backend;
    return job.model && job.plan.shape.slices == 1 &&
           (backend == RunConfig::Backend::Cpu || backend == RunConfig::Backend::Reference);
}

InterleavedRun run_interleaved(const Job& job, int turns, const RunOptions& options) {
    InterleavedRun interleaved;
    const int steps = steps_of(job);
    interleaved.turns = job.plan.asynchronous ? turns : turns_of(steps, turns);
    const Probes probes = probes_of(job, interleaved.turns);
    const std::shared_ptr<Ranks> ranks = ranks_of_process(job.setup.run.transport == RunConfig::Transport::Mpi);
    const CorePlan cores = cores_of_rank(job.setup, job.plan.shape.devices, *ranks);
    const auto between = [&] { interleaved.reference_work.times.push_back(slowest_reference_work(cores, *ranks)); };
    RunOptions probing;
    probing.should_stop = options.should_stop;
    std::vector<std::vector<RunResult>> results = run_in_turns(
        {{&probes.near, probing}, {&probes.alone, probing}, {&job, options, kTurnsOfARun}}, interleaved.turns, between);
    interleaved.runs = std::move(results[2]);
    if (interleaved.runs.empty())
        fail_with(ExitCode::RunFailed, "the run was stopped before its first step");
    if (ranks->rank() != 0)
        return interleaved;
    for (const std::size_t probe : {0, 1})
        require_second_step(results[probe]);
    interleaved.calibration = calibrate(job, {{&probes.alone, traces_of(std::move(results[1])), interleaved.turns},
                                              {&probes.near, traces_of(std::move(results[0])), interleaved.turns}});
    if (!job.plan.asynchronous)
        leave_out_first_steps(interleaved.runs.front().trace, steps, interleaved.turns);
    return interleaved;
}

}  // namespace pw

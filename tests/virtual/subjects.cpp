// The plans of scenarios, each with the weights and the duration of its run without faults.
#include "exec/execute.h"
#include "job/config/config.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "tests/support/temporary_folder.h"
#include "tests/virtual/hosts.h"
#include "tests/virtual/scenario.h"
#include "tests/virtual/world.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr const char* kModel = "workload: {model: mlp, hidden: [6, 6, 6, 6, 6, 6, 6], image_size: 2, classes: 3}";

std::string config_of(const std::string& pipeline, const std::string& more, int devices) {
    return fmt::format(
        "{}\ncluster: {{devices: {}}}\npipeline: {{{}, micro_batch_size: 1}}\n"
        "run: {{backend: reference, timeout: {} us}}\n{}\n",
        kModel, devices, pipeline, kTimeout / kMicrosecond, more);
}

// Runs the job in a world of its own, with all devices in one process.
std::pair<std::string, Ns> run_alone(const Job& job) {
    World world(1);
    std::string hash, failure;
    world.start_process(0, [&] {
        RunOptions options;
        options.whole_trace = false;
        options.before_task = [&](int, const Task& task) {
            if (!is_transfer(task.op))
                world.yield(100 * kMicrosecond);
        };
        try {
            hash = run(job, options).weights_hash;
        } catch (const Error& error) {
            failure = error.what();
        }
        world.end_process(0);
    });
    Hosts now;
    hosts = &now;
    if (!world.run(kNever) || !failure.empty())
        fail("a subject does not run: {}", failure);
    hosts = nullptr;
    return {hash, world.now};
}

}  // namespace

std::vector<Subject> make_subjects() {
    const TemporaryFolder folder;
    std::vector<Subject> subjects;
    const auto add = [&](const std::string& pipeline, const std::string& more = {}, int devices = 4, int steps = 2) {
        const std::string path = folder.write("config.yaml", config_of(pipeline, more, devices));
        Notices notices;
        const auto job_of = [&](const char* transport, int its_steps) {
            return make_job(load_config(path, {fmt::format("run.transport={}", transport),
                                               fmt::format("training.steps={}", its_steps)}),
                            notices);
        };
        Subject subject{pipeline + (more.empty() ? "" : "; " + more), job_of("mpi", steps), {}, 0};
        const int most = subject.job.plan.asynchronous ? 1 : steps;
        for (int done = most == 1 ? steps : 1; done <= steps; ++done)
            std::tie(subject.hash_after.emplace_back(), subject.duration) = run_alone(job_of("threads", done));
        subjects.push_back(std::move(subject));
    };
    for (const Schedule& schedule : schedules())
        if (schedule.trains && schedule.chunks == 1 && !schedule.cuts_sequences())
            add(fmt::format("schedule: {}, micro_batches: {}", schedule.name, schedule.name == "dualpipe" ? 8 : 4));
    for (const Schedule& schedule : schedules())
        if (schedule.chunks > 1)
            add(fmt::format("schedule: {}, micro_batches: {}, stages: 4", schedule.name,
                            schedule.name == "dualpipe-v" ? 4 : 2),
                {}, 2);
    for (const char* transfer : {"communicator: one, receive: deferred, protocol: rendezvous", "exchange: blocking",
                                 "protocol: rendezvous", "protocol: rendezvous, eager_limit: 100 B"})
        add("schedule: 1f1b, micro_batches: 4", fmt::format("transfer: {{{}}}", transfer), 3);
    add("schedule: interleaved, micro_batches: 4, stages: 8", "transfer: {exchange: blocking}", 4, 1);
    add("schedule: 1f1b, micro_batches: 4, stages: 2, replicas: [2, 2]");
    add("schedule: gpipe, micro_batches: 4, stages: 2, replicas: [1, 3]", "training: {clip_norm: 0.1}");
    add("schedule: 1f1b, micro_batches: 4, stages: 1, replicas: [4]", "training: {clip_norm: 0.1}", 4, 3);
    add("schedule: 1f1b, micro_batches: 3", "training: {clip_norm: 0.1, momentum: 0.9}", 3, 3);
    add("schedule: 1f1b, micro_batches: 4, stages: 2, replicas: [2, 2]", "training: {shard_optimizer: true}");
    for (const char* replicas : {"[2, 2]", "[1, 3]"})
        add(fmt::format("schedule: 1f1b, micro_batches: 4, stages: 2, replicas: {}", replicas),
            "transfer: {sum_bucket: 500 B}");
    return subjects;
}

}  // namespace pw

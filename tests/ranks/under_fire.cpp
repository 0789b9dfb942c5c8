// Runs a config on its ranks, one of which gets a signal right before a task of its device: what happens then is up to
// the others.
//
//     mpirun -n 2 under_fire CONFIG RANK STEP OP SIGNAL        op as in a plan: F, SEND_F, S, ..; signal as a number
//
// Rank 0 prints the weights' hash. Exits as pipewright does.
#include "exec/execute.h"
#include "exec/ranks/line.h"
#include "job/config.h"
#include "job/job.h"
#include "job/launched_ranks.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace pw {

namespace {

void run_under_fire(char** argv) {
    const int rank = std::atoi(argv[2]), step = std::atoi(argv[3]), signal = std::atoi(argv[5]);
    const std::string op = argv[4];
    Notices notices;
    const Job job = make_job(load_config(argv[1], {}), notices);
    std::mutex mutex;
    std::map<int, int> begun;  // [device]: how often its first task has begun
    RunOptions options;
    options.before_task = [&](int device, const Task& task) {
        const std::lock_guard lock(mutex);
        if (task == job.plan.order[static_cast<std::size_t>(device)].front())
            ++begun[device];
        if (launched_ranks().rank == rank && begun[device] == step + 1 && letters_of(task.op) == op)
            raise(signal);
    };
    options.finished = [](const RunResult& result) { fmt::print("{}\n", result.weights_hash); };
    run(job, options);
}

}  // namespace

}  // namespace pw

int main(int argc, char** argv) {
    if (argc != 6) {
        fmt::print(stderr, "usage: under_fire CONFIG RANK STEP OP SIGNAL\n");
        return 2;
    }
    try {
        pw::run_under_fire(argv);
        return 0;
    } catch (const pw::StoppedByOthers& error) {
        std::_Exit(static_cast<int>(error.code()));
    } catch (const pw::Error& error) {
        fmt::print(stderr, "[rank {}] error: {}\n", pw::launched_ranks().rank, error.what());
        std::fflush(stderr);
        std::_Exit(static_cast<int>(error.code()));
    }
}

// Runs a config on its ranks. One rank gets a signal right before a task of its device, or right before one of the
// system calls that write its checkpoints. The other ranks must then end by themselves.
//
//     mpirun -n 2 under_fire CONFIG RANK STEP OP SIGNAL [CHECKPOINTS [KEEP [resume]]]
//
// OP is an operation of the plan (F, SEND_F, S, ...) in step STEP, from 0; or write, fsync, rename, unlink or
// rmdir, and then STEP is the number of the call. With CHECKPOINTS there is a checkpoint after every step, and KEEP
// of them are kept; with `resume` the run resumes from the latest one. SIGNAL is a number. Rank 0 prints the
// weights' hash. Exits as pipewright does.
#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/execute.h"
#include "exec/ranks/control_connection.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/launched_ranks.h"
#include "job/load.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

std::string_view deadly_call;  // of this rank; empty: none
std::atomic<int> calls_left{0};
int deadly_signal = 0;

void call(std::string_view name) {
    if (name == deadly_call && calls_left-- == 0)
        raise(deadly_signal);
}

std::string checkpoints;

bool is_checkpoint(int file) {
    char name[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    return readlink(link.c_str(), name, sizeof name - 1) > 0 && std::string_view(name).find(checkpoints) == 0;
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* bytes, size_t count) {
    if (!deadly_call.empty() && is_checkpoint(file))
        call("write");
    return syscall(SYS_write, file, bytes, count);
}
int fsync(int file) {
    call("fsync");
    return static_cast<int>(syscall(SYS_fsync, file));
}
int rename(const char* from, const char* to) noexcept {
    call("rename");
    return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* name) noexcept {
    if (std::string_view(name).find(checkpoints) == 0)
        call("unlink");
    return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}
int rmdir(const char* name) noexcept {
    if (std::string_view(name).find(checkpoints) == 0)
        call("rmdir");
    return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
}
}

namespace pw {

namespace {

void run_under_fire(int argc, char** argv) {
    const int rank = std::atoi(argv[2]), step = std::atoi(argv[3]), signal = std::atoi(argv[5]);
    const std::string op = argv[4];
    checkpoints = argc > 6 ? argv[6] : "/";
    if (op == "write" || op == "fsync" || op == "rename" || op == "unlink" || op == "rmdir") {
        deadly_signal = signal;
        calls_left = step;
        static const std::string kept = op;
        deadly_call = launched_ranks().rank == rank ? std::string_view(kept) : std::string_view();
    }
    Notices notices;
    Config config = load_config(argv[1], {});
    const int steps = config.training.steps;
    std::shared_ptr<const FoundCheckpoint> resumed;
    if (argc > 8) {
        std::vector<std::string> left_out;
        resumed = std::make_shared<const FoundCheckpoint>(find_checkpoint(checkpoints, left_out));
        config.training.steps -= resumed->checkpoint.step;
    }
    const Job job = make_job(std::move(config), notices);
    std::mutex mutex;
    std::map<int, int> begun;  // [device]: the number of times its first task has begun
    RunOptions options;
    if (argc > 6) {
        options.checkpoints =
            std::make_shared<CheckpointFolder>(checkpoints, argc > 7 ? std::atoi(argv[7]) : 1000, steps);
        options.checkpoint_every = 1;
        options.resumed = resumed;
    }
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
    if (argc < 6 || argc > 9) {
        fmt::print(stderr, "usage: under_fire CONFIG RANK STEP OP SIGNAL [CHECKPOINTS [KEEP [resume]]]\n");
        return 2;
    }
    try {
        pw::run_under_fire(argc, argv);
        return 0;
    } catch (const pw::StoppedByOthers& error) {
        std::_Exit(static_cast<int>(error.code()));
    } catch (const pw::Error& error) {
        fmt::print(stderr, "[rank {}] error: {}\n", pw::launched_ranks().rank, error.what());
        std::fflush(stderr);
        std::_Exit(static_cast<int>(error.code()));
    }
}

// Runs the model of many readers on its ranks, and prints the weights' hash on rank 0.
//
//     mpirun -n 2 many_readers run|reference CONFIG [KEY=VALUE]...
//
// With `reference`, and without mpirun, it runs the plan's oracle.
#include "tests/support/many_readers.h"
#include "exec/execute.h"
#include "exec/oracle.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/launched_ranks.h"
#include "job/load.h"
#include "workloads/error.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
    if (argc < 3) {
        fmt::print(stderr, "usage: many_readers run|reference CONFIG [KEY=VALUE]...\n");
        return 2;
    }
    try {
        pw::Notices notices;
        const pw::Job job =
            make_job(pw::load_config(argv[2], {argv + 3, argv + argc}), pw::model_of_many_readers(), notices);
        pw::RunOptions options;
        options.finished = [](const pw::RunResult& result) { fmt::print("{}\n", result.weights_hash); };
        run(argv[1] == std::string_view("reference") ? oracle_of(job) : job, options);
        return 0;
    } catch (const pw::Error& error) {
        fmt::print(stderr, "[rank {}] error: {}\n", pw::launched_ranks().rank, error.what());
        std::fflush(stderr);
        std::_Exit(static_cast<int>(error.code()));
    }
}

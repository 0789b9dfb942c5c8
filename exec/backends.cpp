// What this build can execute on: rows, not plug-ins.
#include "exec/execute.h"

#include "workloads/error.h"

namespace pw {

namespace {

struct Row {
    std::string_view name, summary;
    const HostKernels& (*kernels)();  // null: not in this build
};

constexpr Row kBackends[] = {
    {"cpu", "oneDNN on pinned cores, fp32", cpu_kernels},
    {"reference", "plain loops, fp32: obviously right and slow", reference_kernels},
    {"emulated", "durations slept from the cost model, real threads and hand-over", nullptr},
    {"cuda", "cuDNN, cuBLAS and NCCL", nullptr},
};

constexpr std::string_view kNotHere = "not in this build";

}  // namespace

const HostKernels& kernels_named(const std::string& backend) {
    std::string ready;
    for (const Row& row : kBackends) {
        if (row.kernels != nullptr)
            ready += (ready.empty() ? "" : ", ") + std::string(row.name);
        if (row.name != backend)
            continue;
        if (row.kernels == nullptr)
            fail_with(ExitCode::RunFailed, "run.backend {}: {}; use cpu or reference", row.name, kNotHere);
        return row.kernels();
    }
    fail("no backend '{}'; this build has {}", backend, ready);
}

std::vector<BackendRow> backends() {
    std::vector<BackendRow> rows;
    for (const Row& row : kBackends)
        rows.push_back({row.name, row.summary, std::string(row.kernels == nullptr ? kNotHere : "ready")});
    return rows;
}

std::vector<BackendRow> transports() {
    return {{"threads", "devices of one process, hand-over by pointer", "ready"},
            {"mpi", "ranks on one host or many", std::string(kNotHere)},
            {"nccl", "GPUs", std::string(kNotHere)}};
}

}  // namespace pw

// What this build can execute on: rows, not plug-ins.
#include "exec/execute.h"
#include "exec/host/host_work.h"

#include "schedules/schedule.h"
#include "workloads/error.h"

#include <algorithm>
#include <iterator>

namespace pw {

namespace {

struct Row {
    std::string_view name, summary;
    std::unique_ptr<HostWork> (*work)(const HostPlan& plan, const RunOptions& options);  // null: not in this build
    const HostKernels& (*kernels)();                                                     // null: computes nothing
};

constexpr Row kBackends[] = {
    {"cpu", "oneDNN on pinned cores, fp32", make_kernel_work, cpu_kernels},
    {"reference", "plain loops, fp32: obviously right and slow", make_kernel_work, reference_kernels},
    {"emulated", "durations slept from the cost model, real threads and hand-over", make_emulated_work, nullptr},
    {"cuda", "cuDNN, cuBLAS and NCCL", nullptr, nullptr},
};

constexpr std::string_view kNotHere = "not in this build";

const Row& row_named(const std::string& backend) {
    std::string ready;
    for (const Row& row : kBackends) {
        if (row.work != nullptr)
            ready += (ready.empty() ? "" : ", ") + std::string(row.name);
        if (row.name != backend)
            continue;
        if (row.work == nullptr)
            fail_with(ExitCode::RunFailed, "run.backend {}: {}; use cpu or reference", row.name, kNotHere);
        return row;
    }
    fail("no backend '{}'; this build has {}", backend, ready);
}

}  // namespace

bool is_emulated(const Config& config) {
    return std::any_of(std::begin(kBackends), std::end(kBackends), [&](const Row& row) {
        return row.name == config.run.backend && row.work == make_emulated_work;
    });
}

TransferMode executed_mode(const Config& config) {
    TransferMode mode = mode_of(config.transfer);
    if (!is_emulated(config) && !mode.early_receive)
        mode.protocol = TransferMode::Protocol::Rendezvous;
    return mode;
}

const HostKernels& kernels_named(const std::string& backend) {
    const Row& row = row_named(backend);
    if (row.kernels == nullptr)
        fail("run.backend {} computes nothing: there are no kernels to measure; use cpu or reference", row.name);
    return row.kernels();
}

std::unique_ptr<HostWork> make_work(const HostPlan& plan, const RunOptions& options) {
    return row_named(plan.job.config.run.backend).work(plan, options);
}

std::vector<BackendRow> backends() {
    std::vector<BackendRow> rows;
    for (const Row& row : kBackends)
        rows.push_back({row.name, row.summary, std::string(row.work == nullptr ? kNotHere : "ready")});
    return rows;
}

std::vector<BackendRow> transports() {
    return {{"threads", "devices of one process, hand-over by pointer", "ready"},
            {"mpi", "ranks on one host or many", std::string(kNotHere)},
            {"nccl", "GPUs", std::string(kNotHere)}};
}

}  // namespace pw

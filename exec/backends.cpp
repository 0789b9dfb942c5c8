// The tables of what this build can execute on: backends and transports are rows, not plug-ins.
#include "exec/engine/device.h"
#include "exec/engine/pin.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/execute.h"
#include "exec/ranks/measure_link.h"
#include "exec/ranks/ranks.h"
#ifdef PIPEWRIGHT_CUDA
#include "exec/cuda/backend.h"
#endif

#include "schedules/orders/schedule.h"
#include "workloads/error.h"
#include "workloads/process.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace pw {

namespace {

std::string ready() { return "ready"; }
#ifndef PIPEWRIGHT_CUDA
std::string not_built() { return "not in this build"; }
#endif

template <const HostKernels& (*kernels)()>
std::shared_ptr<const Kernels> open_host(const Config& config, int, int) {
    kernels().start_device(config.run.threads_per_device);
    return {std::shared_ptr<void>(), &kernels()};  // they live as long as the program
}

using Backend = RunConfig::Backend;
using Transport = RunConfig::Transport;

struct Row {
    Backend backend;
    std::string_view summary;
    std::unique_ptr<Devices> (*work)(const RunPlan& plan, const RunOptions& options);
    std::shared_ptr<const Kernels> (*open)(const Config& config, int device, int devices);  // null: computes nothing
    TransferCost (*transfer)(const Config& config);
    std::string (*status)();
    std::vector<std::string> (*addresses)(const Config& config, int devices);  // on the PCI bus; null: none
};

constexpr Row kBackends[] = {
    {Backend::Cpu, "oneDNN on pinned cores, fp32", make_training, open_host<cpu_kernels>, measure_host_transfer_cost,
     ready, nullptr},
    {Backend::Reference, "plain loops, fp32: obviously right and slow", make_training, open_host<reference_kernels>,
     measure_host_transfer_cost, ready, nullptr},
    {Backend::Emulated, "durations slept from the cost model, real threads and hand-over", make_emulation, nullptr,
     nullptr, ready, nullptr},
#ifdef PIPEWRIGHT_CUDA
    {Backend::Cuda, "cuDNN and cuBLAS on NVIDIA GPUs, fp32, tf32 or bf16", make_cuda_training, open_cuda_kernels,
     measure_cuda_transfer_cost, cuda_status, cuda_addresses},
#else
    {Backend::Cuda, "cuDNN and cuBLAS on NVIDIA GPUs, fp32, tf32 or bf16", nullptr, nullptr, nullptr, not_built,
     nullptr},
#endif
};

// "cpu, reference or emulated": which of them this machine can run now.
template <class Condition>
std::string ready_where(Condition condition) {
    std::vector<std::string_view> names;
    for (const Row& row : kBackends)
        if (condition(row) && row.status() == ready())
            names.push_back(name_of(row.backend));
    const std::string_view last = names.back();  // the host's backends are always there
    names.pop_back();
    return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::string all_ready() {
    return ready_where([](const Row&) { return true; });
}

// A backend that the build lacks is a mistake of the config; one that the machine cannot run fails while running.
const Row& row_of(const Config& config) {
    const auto* const row = std::find_if(std::begin(kBackends), std::end(kBackends),
                                         [&](const Row& each) { return each.backend == config.run.backend; });
    if (row == std::end(kBackends) || row->work == nullptr)
        config.fail_at("run.backend", fmt::format("run.backend {} is not in this build", name_of(config.run.backend)),
                       fmt::format("use run.backend: {}, or build it: cmake --preset cuda (docs/gpu.md)", all_ready()));
    if (const std::string status = row->status(); status != ready())
        fail_with(ExitCode::RunFailed, "run.backend {}: {}\n  help: use run.backend: {}", name_of(row->backend), status,
                  all_ready());
    return *row;
}

}  // namespace

std::shared_ptr<const Kernels> open_kernels(const Config& config, int device, int devices) {
    const Row& row = row_of(config);
    if (row.open == nullptr)
        fail("run.backend {} computes nothing: there are no kernels to measure\n  help: use {}", name_of(row.backend),
             ready_where([](const Row& each) { return each.open != nullptr; }));
    return row.open(config, device, devices);
}

std::vector<int> numa_nodes(const Config& config, int devices) {
    std::vector<int> nodes;
    if (const Row& row = row_of(config); row.addresses != nullptr)
        for (const std::string& address : row.addresses(config, devices))
            nodes.push_back(numa_node_of(address));
    return nodes;
}

// Ranks that share no host hand nothing over inside one but what a process does.
TransferCost measure_transfer_cost(const Config& config) {
    TransferCost transfer = row_of(config).transfer(config);
    if (config.run.transport != Transport::Mpi || join_ranks().size() == 1)
        return transfer;
    const LinksOfRanks links = measure_links(join_ranks(), host_name());
    if (links.inside)
        transfer.link = transfer.sums = *links.inside;
    transfer.between_hosts = links.between;
    transfer.sent_copies = true;
    return transfer;
}

std::unique_ptr<Devices> make_devices(const RunPlan& plan, const RunOptions& options) {
    return row_of(plan.job.config).work(plan, options);
}

std::vector<BackendRow> backends() {
    std::vector<BackendRow> rows;
    for (const Row& row : kBackends)
        rows.push_back({name_of(row.backend), row.summary, row.status()});
    return rows;
}

std::vector<BackendRow> transports() {
#ifdef PIPEWRIGHT_CUDA
    const std::string nccl = nccl_status();
#else
    const std::string nccl = not_built();
#endif
    return {
        {name_of(Transport::Threads), "devices of one process: by pointer, between CUDA devices by copy", "ready"},
        {name_of(Transport::Link), "devices that compute on the host, by copies over cluster.link, emulated", "ready"},
        {name_of(Transport::Nccl), "CUDA devices, by send and receive kernels, of one process or several (mpirun)",
         nccl},
        {name_of(Transport::Mpi), "devices of several processes (mpirun) that compute on the host, on one host or many",
         ranks_status()}};
}

}  // namespace pw

// The tables of backends and transports. The functions of the backend cuda are in a module.
#include "exec/backends.h"
#include "exec/cuda/module.h"
#include "exec/engine/device.h"
#include "exec/engine/pin.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/execute.h"
#include "exec/measuring/transfer_cost.h"
#include "exec/ranks/measure_link.h"
#include "exec/ranks/ranks.h"

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

template <const HostKernels& (*kernels)()>
OpenDevice open_host(const Setup& setup, int) {
    return [threads = setup.run.threads_per_device](int) -> std::shared_ptr<const Kernels> {
        kernels().start_device(threads);
        return {std::shared_ptr<void>(), &kernels()};  // they have no state and exist until the program ends
    };
}

using Backend = RunConfig::Backend;
using Transport = RunConfig::Transport;

constexpr BackendFunctions kCpu = {ready, make_training, open_host<cpu_kernels>, measure_host_transfer_cost, nullptr};
constexpr BackendFunctions kReference = {ready, make_training, open_host<reference_kernels>, measure_host_transfer_cost,
                                         nullptr};
constexpr BackendFunctions kEmulated = {ready, make_emulation, nullptr, nullptr, nullptr};

struct Row {
    Backend backend;
    std::string_view summary;
    const BackendFunctions* built_in;  // null: they are in the module
};

constexpr Row kBackends[] = {
    {Backend::Cpu, "oneDNN on pinned cores, fp32", &kCpu},
    {Backend::Reference, "plain loops, fp32: obviously right and slow", &kReference},
    {Backend::Emulated, "sleeps for the durations of the cost model, with real threads and messages", &kEmulated},
    {Backend::Cuda, "cuDNN and cuBLAS on NVIDIA GPUs, fp32, tf32 or bf16", nullptr},
};

// Returns null if the module could not be loaded.
const BackendFunctions* functions_of(const Row& row) {
    return row.built_in != nullptr ? row.built_in : cuda_module().functions;
}

std::string status_of(const Row& row) {
    const BackendFunctions* const functions = functions_of(row);
    return functions != nullptr ? functions->status() : cuda_module().status;
}

// Returns the backends that this machine can run now: "cpu, reference or emulated".
template <class Condition>
std::string ready_where(Condition condition) {
    std::vector<std::string_view> names;
    for (const Row& row : kBackends)
        if (condition(row) && status_of(row) == ready())
            names.push_back(name_of(row.backend));
    const std::string_view last = names.back();  // never empty: the host's backends are always ready
    names.pop_back();
    return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::string all_ready() {
    return ready_where([](const Row&) { return true; });
}

const Row& row_of(Backend backend) {
    return *std::find_if(std::begin(kBackends), std::end(kBackends),
                         [&](const Row& row) { return row.backend == backend; });
}

// A backend that is not installed is a mistake in the config. One that this machine cannot run is a failure of the
// run.
const BackendFunctions& functions_of(const Setup& setup) {
    const Row& row = row_of(setup.run.backend);
    const BackendFunctions* const functions = functions_of(row);
    const std::string status = status_of(row);
    if (status == ready())
        return *functions;
    std::string help = fmt::format("use run.backend: {}", all_ready());
    if (functions == nullptr)
        help += fmt::format(", or {}", cuda_module().help);
    if (functions == nullptr && !cuda_module().installed)
        setup.fail_at("run.backend", fmt::format("run.backend {} is {}", name_of(row.backend), status), help);
    fail_with(ExitCode::RunFailed, "run.backend {}: {}\n  help: {}", name_of(row.backend), status, help);
}

}  // namespace

OpenDevice open_kernels(const Setup& setup, int devices) {
    const BackendFunctions& functions = functions_of(setup);
    if (functions.open == nullptr)
        fail("run.backend {} computes nothing: there are no kernels to measure\n  help: use {}",
             name_of(setup.run.backend), ready_where([](const Row& each) {
                 return functions_of(each) == nullptr || functions_of(each)->open != nullptr;
             }));
    return functions.open(setup, devices);
}

std::vector<int> numa_nodes(const Setup& setup, int devices) {
    std::vector<int> nodes;
    if (const BackendFunctions& functions = functions_of(setup); functions.addresses != nullptr)
        for (const std::string& address : functions.addresses(setup, devices))
            nodes.push_back(numa_node_of(address));
    return nodes;
}

// If no two ranks share a host, the only messages inside a host are inside a process.
TransferCost measure_transfer_cost(const Setup& setup) {
    TransferCost transfer = functions_of(setup).transfer(setup);
    if (setup.run.transport != Transport::Mpi || join_ranks().size() == 1)
        return transfer;
    const LinksOfRanks links = measure_links(join_ranks(), host_name());
    if (links.inside)
        transfer.link = transfer.sums = *links.inside;
    transfer.between_hosts = links.between;
    transfer.sent_copies = true;
    return transfer;
}

std::unique_ptr<Devices> make_devices(const RunPlan& plan, const RunOptions& options) {
    return functions_of(plan.job.setup).work(plan, options);
}

std::vector<BackendRow> backends() {
    std::vector<BackendRow> rows;
    for (const Row& row : kBackends)
        rows.push_back({name_of(row.backend), row.summary, status_of(row)});
    return rows;
}

std::vector<std::string_view> built_in_backends() {
    std::vector<std::string_view> names;
    for (const Row& row : kBackends)
        if (row.built_in != nullptr)
            names.push_back(name_of(row.backend));
    return names;
}

std::vector<BackendRow> transports() {
    return {
        {name_of(Transport::Threads), "devices of one process: by pointer, between CUDA devices by copy", "ready"},
        {name_of(Transport::Link), "devices that compute on the host, by copies over cluster.link, emulated", "ready"},
        {name_of(Transport::Nccl), "CUDA devices, by send and receive kernels, of one process or several (mpirun)",
         status_of(row_of(Backend::Cuda))},
        {name_of(Transport::Mpi), "devices of several processes (mpirun) that compute on the host, on one host or many",
         ranks_status()}};
}

}  // namespace pw

// The functions of a backend that exec/backends.cpp calls, and the functions of the cuda backend. No vendor types
// appear here.
#pragma once

#include "exec/backends.h"
#include "exec/engine/device.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

struct BackendFunctions {
    std::string (*status)();  // returns "ready", or the reason why this machine cannot run the backend
    std::unique_ptr<Devices> (*work)(const RunPlan& plan, const RunOptions& options);
    OpenDevice (*open)(const Setup& setup, int devices);  // null: it has no kernels
    TransferCost (*transfer)(const Setup& setup);
    std::vector<std::string> (*addresses)(const Setup& setup, int devices);  // on the PCI bus (null: not on the bus)
};

// Returns "ready", or the reason why this machine cannot run CUDA: no driver, an old driver, no GPU. Never throws.
std::string cuda_status();

std::unique_ptr<Devices> make_cuda_training(const RunPlan& plan, const RunOptions& options);
TransferCost measure_cuda_transfer_cost(const Setup& setup);
// Returns the addresses of the devices' GPUs on the PCI bus: "0000:3B:00.0".
std::vector<std::string> cuda_addresses(const Setup& setup, int devices);
OpenDevice open_cuda_kernels(const Setup& setup, int devices);

inline constexpr BackendFunctions kCudaFunctions = {cuda_status, make_cuda_training, open_cuda_kernels,
                                                    measure_cuda_transfer_cost, cuda_addresses};

}  // namespace pw

// The functions behind the cuda rows of exec/backends.cpp. No vendor types appear here.
#pragma once

#include "exec/engine/device.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

// The two return "ready", or why this machine cannot: no driver, one that is too old, no GPU.
std::string cuda_status();
std::string nccl_status();

std::unique_ptr<Devices> make_cuda_training(const RunPlan& plan, const RunOptions& options);
TransferCost measure_cuda_transfer_cost(const Config& config);
// Returns the addresses of the devices' GPUs on the PCI bus: "0000:3B:00.0".
std::vector<std::string> cuda_addresses(const Config& config, int devices);
std::shared_ptr<const Kernels> open_cuda_kernels(const Config& config, int device, int devices);

}  // namespace pw

// Sums of gradients between GPUs: their devices, the bytes that are fetched for them, and the sums that the
// transport itself computes.
#include "exec/cuda/training.h"

#include <algorithm>

namespace pw::cuda {

std::vector<int> CudaTraining::devices_of(const Barrier& barrier) const {
    std::vector<int> devices;
    for (const int node : barrier.first)
        devices.push_back(plan.graph.device_of(node));
    return devices;
}

std::set<Gpu> CudaTraining::gpus_of(const std::vector<int>& devices) const {
    std::set<Gpu> gpus;
    for (const int device : devices)
        gpus.insert(places[device].gpu);
    return gpus;
}

bool CudaTraining::is_on_one_gpu(const Barrier& barrier) const { return gpus_of(devices_of(barrier)).size() == 1; }

bool CudaTraining::is_here(const Barrier& barrier) const {
    const std::vector<int> devices = devices_of(barrier);
    return std::all_of(devices.begin(), devices.end(), [&](int device) { return plan.is_here(device); });
}

bool CudaTraining::reduces(int stage) const {
    const std::vector<int> holders = job.plan.shape.devices_of(stage);
    return transport_->reduces() && holders.size() > 1 && gpus_of(holders).size() == holders.size();
}

// The devices of each group of stages, and the holders of each stage.
std::vector<std::vector<int>> CudaTraining::sums_between_gpus() const {
    std::vector<std::vector<int>> sums;
    for (const SumGroup& group : sum_groups(job.plan.shape)) {
        sums.push_back(group.devices);
        for (const int stage : group.stages)
            sums.push_back(job.plan.shape.devices_of(stage));
    }
    std::erase_if(sums, [&](const std::vector<int>& devices) { return gpus_of(devices).size() == 1; });
    return sums;
}

void CudaTraining::fetch(const Barrier& barrier, const std::vector<int>& others, int tag) {
    if (const std::vector<Fetch> all = fetches_with(barrier, others, tag); !all.empty())
        transport_->fetch(devices_of(barrier), all);
}

void CudaTraining::reduce(const Barrier& barrier) {
    for (const int stage : barrier.stages) {
        if (!reduces(stage))
            continue;
        const std::vector<int> holders = job.plan.shape.devices_of(stage);
        const auto is_own = [&](int holder) { return plan.is_here(holder); };
        if (layouts().full[stage].weights == 0 || std::none_of(holders.begin(), holders.end(), is_own))
            continue;
        std::vector<std::byte*> blocks;
        for (const int holder : holders)
            blocks.push_back(is_own(holder) ? cuda_device(holder).memory(stage).gradients() : nullptr);
        transport_->reduce(holders, blocks, layouts().full[stage].weights);
    }
}

}  // namespace pw::cuda

#include "exec/training/host_blocks.h"

#include "schedules/memory/buffers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

HostBlocks::HostBlocks(const RunPlan& plan, int device, const HeldStages& stages, const Kernels& kernels) {
    std::map<std::pair<Op, int>, int> of_states;  // by stage: nodes of STORE and LOAD
    for (int node = 0; node < plan.graph.size(); ++node)
        if (const Task& task = plan.graph.task(node); plan.graph.device_of(node) == device && is_copy(task.op)) {
            moved_[node] = {};
            if (copies_states(task.op))
                of_states[{task.op, task.stage}] = node;
        }
    std::vector<Buffer> own = host_buffers_of(plan.buffers);
    std::erase_if(own, [&](const Buffer& buffer) { return buffer.device != device; });
    const Packing packing = pack(own, plan.job.plan.shape.devices);
    memory_ = kernels.shared(std::max<Bytes>(packing.arena[static_cast<std::size_t>(device)], kAlignment));
    for (std::size_t k = 0; k < own.size(); ++k) {
        const Buffer& buffer = own[k];
        const StageMemory& stage = stages.at(buffer.stage).memory;
        std::byte* const there = memory_->data() + packing.offset[k];
        if (buffer.use == BufferUse::Optimizer) {
            moved_.at(of_states.at({Op::Store, buffer.stage})).push_back({stage.states(0), there, buffer.bytes});
            moved_.at(of_states.at({Op::Load, buffer.stage})).push_back({there, stage.states(0), buffer.bytes});
            continue;
        }
        const bool until_input = buffer.use == BufferUse::OffloadedUntilInput;
        const auto mb = static_cast<std::size_t>(buffer.microbatch);
        moved_.at(plan.graph.find({Op::Offload, buffer.stage, buffer.microbatch}))
            .push_back(
                {(until_input ? stage.offloaded_until_input : stage.offloaded_until_weight)[mb], there, buffer.bytes});
        moved_.at(plan.graph.find({Op::Reload, buffer.stage, buffer.microbatch}))
            .push_back(
                {there, (until_input ? stage.reloaded_until_input : stage.reloaded_until_weight)[mb], buffer.bytes});
    }
}

}  // namespace pw

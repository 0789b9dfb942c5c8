#include "exec/engine/device.h"

#include <algorithm>

namespace pw {

EdgeBuffers::EdgeBuffers(std::size_t edges, int microbatches) : microbatches_(microbatches) {
    for (auto* rows : {&landing_[0], &landing_[1], &sent_[0], &sent_[1]})
        rows->assign(edges * static_cast<std::size_t>(microbatches), nullptr);
}

void EdgeBuffers::place(const Buffer& buffer, std::byte* address) {
    const std::size_t row = at(buffer.edge, buffer.microbatch);
    const bool forward = buffer.use == BufferUse::LandingForward || buffer.use == BufferUse::SentForward;
    const bool landing = buffer.use == BufferUse::LandingForward || buffer.use == BufferUse::LandingBackward;
    (landing ? landing_ : sent_)[forward][row] = address;
}

std::byte* EdgeBuffers::made(bool forward, int edge, int microbatch) const {
    std::byte* copy = sent_[forward][at(edge, microbatch)];
    return copy != nullptr ? copy : landed(forward, edge, microbatch);
}

std::int64_t RunPlan::samples_of(int update) const {
    const Shape& shape = job.plan.shape;
    return sizes.first_sample(shape.whole_of(shape.last_of(update) + 1)) -
           sizes.first_sample(shape.whole_of(shape.first_of(update)));
}

bool RunPlan::trains() const {
    return std::any_of(job.plan.order.begin(), job.plan.order.end(), [](const std::vector<Task>& order) {
        return std::any_of(order.begin(), order.end(), [](const Task& task) { return task.op == Op::Update; });
    });
}

std::int64_t RunPlan::updates_before(int step, int mini_batch) const {
    const std::int64_t here = std::int64_t{step} * job.plan.shape.updates() + mini_batch;
    return (resumed == nullptr ? 0 : resumed->updates) + (trains() ? here : 0);
}

int RunPlan::gradient_part(int stage, int microbatch) const {
    return job.plan.gradient_parts.empty() ? 0 : job.plan.gradient_parts[stage][microbatch];
}

int RunPlan::gradient_parts(int stage) const {
    if (job.plan.gradient_parts.empty())
        return 1;
    const std::vector<int>& parts = job.plan.gradient_parts[stage];
    return *std::max_element(parts.begin(), parts.end()) + 1;
}

std::vector<int> RunPlan::devices_of_rank(int rank) const {
    std::vector<int> devices;
    for (int device = 0; device < job.plan.shape.devices; ++device)
        if (map.rank_of(device) == rank)
            devices.push_back(device);
    return devices;
}

int RunPlan::edge_of(const Task& transfer) const {
    const Edge on = pw::edge_of(transfer);
    const auto found = std::find_if(edges.begin(), edges.end(), [&](const EdgeBytes& edge) {
        return Edge{edge.from, edge.to} == on;
    });
    return found == edges.end() ? -1 : static_cast<int>(found - edges.begin());
}

}  // namespace pw

#include "schedules/orders/chunk_groups.h"

#include "workloads/error.h"

#include <algorithm>
#include <string>

namespace pw {

std::vector<VirtualMicrobatch> virtual_microbatches(int chunks, int microbatches, int group) {
    std::vector<VirtualMicrobatch> sequence;
    for (int first = 0; first < microbatches; first += group)
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int mb = first; mb < std::min(first + group, microbatches); ++mb)
                sequence.push_back({chunk, mb});
    return sequence;
}

void interleave_stages(const Holding& own, int group, int ahead, Tasks& order, const BackwardOf& backward) {
    const int p = own.shape.devices, v = own.shape.stages / p, device = own.device;
    const std::vector<VirtualMicrobatch> sequence = virtual_microbatches(v, own.shape.microbatches, group);
    const auto all = static_cast<int>(sequence.size());
    ahead = std::min(ahead, all);
    order.reserve(order.size() + 2 * sequence.size());
    const auto forward = [&](int k) {
        order.push_back({Op::Forward, sequence[k].chunk * p + device, sequence[k].microbatch});
    };
    for (int k = 0; k < ahead; ++k)
        forward(k);
    for (int k = 0; k < all; ++k) {
        if (ahead + k < all)
            forward(ahead + k);
        backward((v - 1 - sequence[k].chunk) * p + device, sequence[k].microbatch);
    }
}

namespace {

// PyTorch: one group per p micro-batches; all groups must be equally large.
int rounds_of(int devices, int microbatches) { return std::max(1, microbatches / devices); }

bool fills_rounds(int devices, int microbatches) {
    return microbatches > 0 && microbatches % rounds_of(devices, microbatches) == 0;
}

// Megatron: a group has at least p and at most m micro-batches, and the last group is not shorter than p.
bool is_group(int group, int devices, int microbatches) {
    return group >= devices && group <= microbatches && (microbatches % group == 0 || microbatches % group >= devices);
}

int group_of_even_rounds(const Shape& shape) {
    const int p = shape.devices, m = shape.microbatches;
    if (fills_rounds(p, m))
        return m / rounds_of(p, m);
    int less = m, more = m;
    while (!fills_rounds(p, less))
        --less;
    while (!fills_rounds(p, more))
        ++more;
    int group = p;  // m itself is a group, so that the loop ends
    while (!is_group(group, p, m))
        ++group;
    fail_about({Setting::MicroBatches, Setting::Group},
               "{} micro-batches on {} devices make {} rounds, which must be equally long\n  help: take {} or {} "
               "micro-batches, or groups of {}",
               m, p, rounds_of(p, m), less, more, group);
}

}  // namespace

int group_size(const Shape& shape, const ScheduleOptions& options) {
    const int p = shape.devices, m = shape.microbatches, group = options.group;
    if (group == 0)
        return group_of_even_rounds(shape);
    if (is_group(group, p, m))
        return group;
    if (m < p)
        fail_about(
            {Setting::Group, Setting::MicroBatches},
            "a group of {} micro-batches for {} micro-batches on {} devices: a group has at least as many as there are "
            "devices\n  help: leave the group out, or take {} micro-batches or more",
            group, m, p, p);
    std::string legal;
    for (int distance = 1; distance <= std::max(group, m) && legal.empty(); ++distance)
        for (const int near : {group - distance, group + distance})
            if (is_group(near, p, m))
                legal += (legal.empty() ? "" : " or ") + std::to_string(near);
    fail_about(
        {Setting::Group},
        "a group of {} micro-batches: it must be from {} (devices) to {} (micro-batches) and leave no last group "
        "shorter than {}\n  help: {}",
        group, p, m, p, legal.empty() ? "leave the group out" : "take groups of " + legal);
}

}  // namespace pw

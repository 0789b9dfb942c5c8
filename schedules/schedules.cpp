#include "schedules/passes.h"
#include "schedules/schedule.h"
#include "workloads/error.h"

#include <algorithm>
#include <cctype>

namespace pw {

namespace {

// Model parallelism: one micro-batch in flight, one device at work at a time.
std::vector<Task> naive(const Shape& shape, int device, const ScheduleOptions&) {
    const std::vector<int> stages = shape.stages_of(device);
    std::vector<Task> order;
    for (int mb = 0; mb < shape.microbatches; ++mb) {
        for (auto stage = stages.begin(); stage != stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
        for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, mb});
    }
    return order;
}

// GPipe (Huang et al., 2019): all forwards, then all backwards; the drain is first in, first out
// (PyTorch) or last in, first out.
std::vector<Task> gpipe(const Shape& shape, int device, const ScheduleOptions& options) {
    const std::vector<int> stages = shape.stages_of(device);
    const int last = shape.microbatches - 1;
    std::vector<Task> order;
    for (int mb = 0; mb <= last; ++mb)
        for (auto stage = stages.begin(); stage != stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
    for (int mb = 0; mb <= last; ++mb)
        for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, options.lifo_drain ? last - mb : mb});
    return order;
}

// 1F1B ("PipeDream-Flush", DAPPLE). Device d runs (devices - 1 - d) forwards ahead, then alternates,
// so it never holds more than (devices - d) activations.
std::vector<Task> one_f_one_b(const Shape& shape, int device, const ScheduleOptions&) {
    const int stage = shape.only_stage_of(device);
    const int warmup = std::min(shape.stages - 1 - stage, shape.microbatches);
    std::vector<Task> order;
    for (int mb = 0; mb < warmup; ++mb)
        order.push_back({Op::Forward, stage, mb});
    for (int mb = 0; mb < shape.microbatches; ++mb) {
        if (warmup + mb < shape.microbatches)
            order.push_back({Op::Forward, stage, warmup + mb});
        order.push_back({Op::Backward, stage, mb});
    }
    return order;
}

constexpr Schedule kSchedules[] = {
    {"naive", "model parallel: one micro-batch in flight", "", false, WeightPolicy::Flush, naive},
    {"gpipe", "all forwards, then all backwards", "Huang et al. 2019, arXiv 1811.06965", false, WeightPolicy::Flush,
     gpipe},
    {"1f1b", "after warm-up, one forward then one backward", "DAPPLE, PipeDream-Flush 2020", false, WeightPolicy::Flush,
     one_f_one_b},
    // 1F1B that never flushes: every micro-batch is a mini-batch, its update follows its backward.
    {"pipedream", "asynchronous 1F1B, an update after every backward, stashed weights", "Narayanan et al. 2019", true,
     WeightPolicy::Stash, one_f_one_b},
};

std::string lower(std::string_view text) {
    std::string copy(text);
    std::transform(copy.begin(), copy.end(), copy.begin(), [](unsigned char c) { return std::tolower(c); });
    return copy;
}

std::string all_names() {
    std::string names;
    for (const Schedule& schedule : kSchedules)
        names += (names.empty() ? "" : ", ") + std::string(schedule.name);
    return names;
}

}  // namespace

std::span<const Schedule> schedules() { return kSchedules; }

const Schedule& schedule_named(std::string_view name) {
    for (const Schedule& schedule : kSchedules)
        if (schedule.name == lower(name))
            return schedule;
    fail("no schedule '{}'; the schedules are {}", name, all_names());
}

Plan make_plan(const Schedule& schedule, Shape shape, const ScheduleOptions& options) {
    Plan plan;
    plan.schedule = schedule.name;
    plan.weights = schedule.weights;
    plan.asynchronous = schedule.asynchronous;
    if (schedule.asynchronous)
        shape.per_update = 1;
    plan.shape = std::move(shape);
    for (int device = 0; device < plan.shape.devices; ++device)
        plan.order.push_back(schedule.order(plan.shape, device, options));
    add_updates(plan);
    add_transfers(plan);
    check(plan);
    return plan;
}

}  // namespace pw

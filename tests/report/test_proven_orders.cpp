// What reports of schedules by costs prove, against every order of small pipelines: orders are listed here, and the
// simulator judges them as plans that are given.
#include "job/job.h"
#include "job/plan.h"
#include "job/simulated_order.h"
#include "report/order_gap.h"
#include "report/report.h"
#include "schedules/orders/schedule.h"
#include "tests/support/config_text.h"
#include "tests/support/every_order.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace pw {
namespace {

Job job_in(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    return make_job(load(text, set), notices);
}

std::vector<Bytes> memory_in(const Job& job) {
    std::vector<Bytes> memory;
    for (const DeviceConfig& device : job.setup.cluster.devices)
        memory.push_back(device.memory);
    return memory;
}

// A pipeline of a few passes with any of the costs that a config can have.
struct SmallPipeline {
    std::string text;
    bool pairs = false;
    int held = 0;  // micro-batches; 0: by the memory
};

class SmallPipelines {
public:
    explicit SmallPipelines(unsigned seed) : random_(seed) {}

    SmallPipeline draw() {
        constexpr const char* kNames[] = {"auto", "auto", "auto-v", "auto-bidirectional"};
        const int kind = pick(random_, 0, 3);
        const bool both = kind == 3;
        devices_ = both ? 2 : kind == 0 ? pick(random_, 1, 3) : pick(random_, 1, 2);
        stages_ = both || kind == 0 ? devices_ : 2 * devices_;
        microbatches_ = devices_ == 1 ? pick(random_, 1, 3) : pick(random_, 2, both ? 4 : 3);
        SmallPipeline drawn;
        drawn.pairs = pick(random_, 0, 3) == 0;
        drawn.text = workload(drawn.pairs) + cluster() + "pipeline: {schedule: " + kNames[kind] +
                     fmt::format(", stages: {}, micro_batches: {}", stages_, microbatches_);
        if (!has_memory_ || one_in(4)) {
            drawn.held = pick(random_, 1, microbatches_ + 1);
            drawn.text += fmt::format(", activations: {}", drawn.held);
        }
        drawn.text += pipeline(drawn.pairs, kind) + "}\n" + transfer();
        return drawn;
    }

private:
    bool one_in(int count) { return pick(random_, 0, count - 1) == 0; }

    template <class Value>
    std::string list(int count, Value value) {
        std::string text = "[";
        for (int k = 0; k < count; ++k)
            text += (k > 0 ? ", " : "") + value();
        return text + "]";
    }
    std::string times(int most) {
        return list(stages_, [&] { return fmt::format("{} ns", pick(random_, 1, most)); });
    }
    std::string sizes(int most) {
        return list(stages_, [&] { return fmt::format("{} B", pick(random_, 0, most)); });
    }

    std::string workload(bool pairs) {
        std::string text =
            fmt::format("workload: {{model: uniform, forward: {}, backward_input: {}, backward_weight: {}", times(30),
                        times(30), times(30));
        has_memory_ = one_in(2);
        if (has_memory_)
            text += fmt::format(", activation: {}, activation_until_weight: {}", sizes(60), sizes(70));
        if (one_in(3))
            text += ", weights: " + sizes(20);
        if (one_in(2))
            text += ", output: " + sizes(30);
        if (pairs && one_in(2))
            text += ", overlapped_forward_backward: " + times(60);
        return text + "}\n";
    }

    std::string cluster() {
        std::string text = "cluster: {devices: ";
        const std::string memory = has_memory_ ? fmt::format("{} B", pick(random_, 40, 700)) : "inf";
        text += list(devices_, [&] {
            return fmt::format("{{speed: {}, memory: {}}}", one_in(3) ? "1.7" : one_in(4) ? "0.6" : "1", memory);
        });
        if (one_in(2))
            text += fmt::format(", dispatch: {} ns", pick(random_, 1, 20));
        if (one_in(2))
            text += fmt::format(", link: {{bandwidth: {}, latency: {} ns}}", one_in(2) ? "inf" : "1 GB/s",
                                pick(random_, 0, 12));
        return text + "}\n";
    }

    std::string length() {
        constexpr const char* kLengths[] = {"0.1", "0.25", "0.5", "0.9", "1", "1.5", "2", "3"};
        const auto any = [&] { return kLengths[static_cast<std::size_t>(pick(random_, 0, 7))]; };
        return one_in(3) ? fmt::format("{{F: {}, I: {}, W: {}, bytes: {}}}", any(), any(), any(), any()) : any();
    }

    std::string pipeline(bool pairs, int kind) {
        std::string text;
        if (one_in(2)) {
            const std::string all = one_in(4) ? length() : "";
            text += ", micro_batch_lengths: " + list(microbatches_, [&] { return all.empty() ? length() : all; });
            if (kind != 3 && one_in(4))
                text += ", micro_batch_order: any";
        }
        if (pairs && one_in(2))
            text += fmt::format(", pair_exposed: {}", 0.1 * pick(random_, 0, 9));
        if (one_in(4))
            text += one_in(2) ? ", recompute: all" : fmt::format(", recompute: [{}]", pick(random_, 0, stages_ - 1));
        if (one_in(3))
            text += ", aim: span";
        return text;
    }

    std::string transfer() {
        if (!one_in(4))
            return "";
        constexpr const char* kModes[] = {"receive: deferred", "protocol: rendezvous", "communicator: direction",
                                          "exchange: blocking"};
        return fmt::format("transfer: {{{}}}\n", kModes[static_cast<std::size_t>(pick(random_, 0, 3))]);
    }

    Random random_;
    int devices_ = 0, stages_ = 0, microbatches_ = 0;
    bool has_memory_ = false;
};

// The least times of the orders that fit.
struct Found {
    StepTimes best;
    bool all = true;  // no order was left out
};

// Judges orders of a job's pipeline.
class Judge {
public:
    explicit Judge(const Job& job) : job_(job), memory_(memory_in(job)) {
        options_.recompute = job.setup.pipeline.recompute;
        options_.transfers = job.setup.transfer;
    }

    SimulatedOrder of(std::vector<Tasks> order) const {
        try {
            return simulated_order(with_order(schedule_of(job_.setup), job_.plan.shape, std::move(order), options_),
                                   job_.costs, job_.mode, memory_);
        } catch (const Error&) {  // it waits forever
            return {{}, false};
        }
    }

    // Returns the least time that the tasks of a device take, one after the other.
    Ns work_of(const Tasks& list) const {
        double sum = 0;
        for (const Task& task : list) {
            const StageCost& cost = job_.costs.stage[static_cast<std::size_t>(task.stage)];
            const MicroBatchLength length = job_.costs.length_of(task.microbatch, task.stage);
            const double input = static_cast<double>(cost.backward_input) * length.backward_input,
                         weight = static_cast<double>(cost.backward_weight) * length.backward_weight;
            const double time = task.op == Op::Forward          ? static_cast<double>(cost.forward) * length.forward
                                : task.op == Op::BackwardInput  ? input
                                : task.op == Op::BackwardWeight ? weight
                                                                : input + weight;
            const double speed = job_.costs.cluster->speed_of(job_.plan.shape.server_of(task.stage, task.microbatch));
            sum += time / speed - 1 + static_cast<double>(job_.costs.dispatch);
        }
        return static_cast<Ns>(sum);
    }

private:
    const Job& job_;
    std::vector<Bytes> memory_;
    PlanOptions options_;
};

// Simulates orders with a list of each device, all combinations or as many as allowed.
Found best_of(const Job& job, const SmallPipeline& drawn, Random& random) {
    constexpr std::size_t kMostLists = 400, kDrawnLists = 12, kMostOrders = 600;
    const Judge judge(job);
    const Shape& shape = job.plan.shape;
    Found found;
    std::vector<std::vector<Tasks>> lists;
    double orders = 1;
    for (int device = 0; device < shape.devices; ++device) {
        int stages = 0;  // of a micro-batch
        for (int mb = 0; mb < shape.microbatches; ++mb) {
            int served = 0;
            for (int stage = 0; stage < shape.stages; ++stage)
                served += shape.server_of(stage, mb) == device ? 1 : 0;
            stages = std::max(stages, served);
        }
        const int held = drawn.held > 0 ? drawn.held * stages : shape.stages * shape.microbatches;
        ListsOfDevice of_device(shape, device, held);
        lists.push_back(of_device.all(kMostLists));
        found.all = found.all && !lists.back().empty();
        if (lists.back().empty())
            lists.back() = of_device.some(kDrawnLists, random);
        if (drawn.pairs)
            lists.back() = with_pairs(lists.back());
        orders *= static_cast<double>(lists.back().size());
    }
    found.all = found.all && orders <= kMostOrders;
    std::vector<std::size_t> at(lists.size(), 0);
    for (std::size_t number = 0; number < std::min<std::size_t>(kMostOrders, static_cast<std::size_t>(orders));
         ++number) {
        std::vector<Tasks> order;
        std::size_t rest = number;
        for (const std::vector<Tasks>& of_device : lists) {
            const std::size_t chosen =
                found.all ? rest % of_device.size()
                          : static_cast<std::size_t>(pick(random, 0, static_cast<int>(of_device.size()) - 1));
            rest /= of_device.size();
            order.push_back(of_device[chosen]);
        }
        Ns work = 0;
        for (const Tasks& list : order)
            work = std::max(work, judge.work_of(list));
        if (!drawn.pairs && work >= found.best.step && work >= found.best.span)
            continue;
        const SimulatedOrder simulated = judge.of(std::move(order));
        if (!simulated.fits)
            continue;
        found.best.step = std::min(found.best.step, simulated.times.step);
        found.best.span = std::min(found.best.span, simulated.times.span);
    }
    return found;
}

int cases() {
    if (const char* const count = std::getenv("PIPEWRIGHT_ORDERS"))
        return std::atoi(count);
    return soaks() ? 20'000 : kSanitized ? 60 : 50;
}

TEST(ProvenOrders, AreNeverLongerThanAnyOrder) {
    SmallPipelines pipelines(59);
    Random random(60);
    int whole = 0, proven = 0, named = 0;
    for (int round = 0; round < cases(); ++round) {
        const SmallPipeline drawn = pipelines.draw();
        SCOPED_TRACE(fmt::format("round {}\n{}", round, drawn.text));
        const Job job = job_in(drawn.text);
        const Report report = predicted_report(job);
        ASSERT_TRUE(report.order_gap);
        const OrderGap& gap = *report.order_gap;
        const Found found = best_of(job, drawn, random);
        EXPECT_LE(gap.least_step, found.best.step);
        EXPECT_LE(gap.least_span, found.best.span);
        whole += found.all;
        proven += gap.step == 0 || gap.span == 0;
        if (!fits(report))
            continue;
        const auto time = [&](const Metrics& metrics) { return gap.aims_at_span ? metrics.span : metrics.step_time; };
        for (const Schedule& schedule : schedules()) {
            if (schedule.needs_costs || schedule.asynchronous() || !schedule.trains || schedule.cuts_sequences())
                continue;
            std::optional<Job> other;
            try {
                other = job_in(drawn.text, {"pipeline.schedule=" + std::string(schedule.name)});
            } catch (const Error&) {  // it is not defined for the shape
                continue;
            }
            bool alike = other->plan.shape.stages == job.plan.shape.stages;
            for (int stage = 0; alike && stage < job.plan.shape.stages; ++stage)
                for (int mb = 0; mb < job.plan.shape.microbatches; ++mb)
                    alike = alike && other->plan.shape.server_of(stage, mb) == job.plan.shape.server_of(stage, mb);
            if (!alike || drawn.held > 0)
                continue;
            const Report of_other = predicted_report(*other);
            if (!fits(of_other))
                continue;
            ++named;
            EXPECT_LE(time(report.metrics), time(of_other.metrics)) << schedule.name;
            EXPECT_LE(gap.least_step, of_other.metrics.step_time) << schedule.name;
            EXPECT_LE(gap.least_span, of_other.metrics.span) << schedule.name;
        }
        if (HasFailure())
            return;
    }
    EXPECT_GT(whole, cases() / 8);
    EXPECT_GT(proven, cases() / 4);
    EXPECT_GT(named, cases() / 8);
}

// A pair is one launch: it hides a whole dispatch, whatever share of the shorter pass it exposes.
TEST(ProvenOrders, PairsHideOneDispatch) {
    const SmallPipeline pipeline{
        "workload: {model: uniform, forward: [14 ns, 14 ns], backward_input: [4 ns, 29 ns], backward_weight: [6 ns, 9 "
        "ns]}\n"
        "cluster: {devices: 1, dispatch: 10 ns}\n"
        "pipeline: {schedule: auto-v, stages: 2, micro_batches: 2, pair_exposed: 0.9}\n",
        true};
    const Job job = job_in(pipeline.text);
    const Report report = predicted_report(job);
    Random random(1);
    const Found found = best_of(job, pipeline, random);
    EXPECT_LT(found.best.step, report.metrics.step_time);
    EXPECT_LE(report.order_gap.value().least_step, found.best.step);
}

}  // namespace
}  // namespace pw

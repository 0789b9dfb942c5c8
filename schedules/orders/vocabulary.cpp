// Vocabulary parallelism (Yeung et al., MLSys 2025, arXiv 2411.05288): the embedding and the head of a transformer are
// divided among all devices. Stages d, d + p and d + 2p of device d are its part of the embedding, its blocks and its
// part of the head.
#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace pw {

namespace {

// The first part of the blocks reads all parts of the embedding, and all parts of the head read the last part of the
// blocks.
std::vector<Edge> edges_of_parts(int parts) {
    std::vector<Edge> edges;
    for (int part = 0; part < parts; ++part)
        edges.push_back({part, parts});
    for (int stage = parts; stage + 1 < 2 * parts; ++stage)
        edges.push_back({stage, stage + 1});
    for (int part = 0; part < parts; ++part)
        edges.push_back({2 * parts - 1, 2 * parts + part});
    return edges;
}

int three_per_device(int /*stages*/, int devices) { return 3 * devices; }

void link_parts(Shape& shape) {
    const int parts = shape.stages / 3;
    if (!shape.edges)
        shape.edges = edges_of_parts(parts);
    shape.joined.resize(static_cast<std::size_t>(parts));
    std::iota(shape.joined.begin(), shape.joined.end(), 2 * parts);
}

void check_parts(const Shape& pipeline) {
    if (pipeline.edges != edges_of_parts(pipeline.devices))
        fail(
            "the schedule divides the first and the last layer among all devices, and these stages have whole layers\n"
            "  help: take a transformer on a cluster, or the times of three stages for each device");
}

constexpr Placement kParts{"parts", "three stages", three_per_device, nullptr, false, check_parts, link_parts};

// Times in which a forward takes 4, a backward 8, parts of the embedding and the head nothing. Every micro-batch runs
// kInterval after its predecessor. Only until the last device has its first micro-batch, forwards follow each other.
constexpr int kForward = 4, kBackward = 8, kInterval = kForward + kBackward;

// When a device starts the passes of micro-batch 0 by the intervals of later ones.
struct Starts {
    int forward;
    int score;      // F of the head: S
    int gradients;  // B or W of the head: T
    int backward, scatter;
};

// 1F1B, whose last backward waits one more interval for each of the `barriers` between the last forward and itself. So
// sums over all devices have an interval to end, and device 0 has p + barriers micro-batches in flight (section 5).
template <int barriers>
Starts in_own_slots(int devices, int device) {
    const int score = kForward * devices, backward = score + kInterval * barriers;
    return {.forward = kForward * device,
            .score = score,
            .gradients = score + kInterval,
            .backward = backward + kBackward * (devices - 1 - device),
            .scatter = backward + kBackward * devices};
}

// All devices run the parts of the head of a micro-batch at the same time, as tensor-parallel ranks do (nnScaler, Lin
// et al., OSDI 2024). Between two of them each device runs a forward and a backward, so that a micro-batch advances by
// two forwards or by a backward: device 0 has 3p / 2 micro-batches in flight.
Starts in_turns(int devices, int device) {
    const bool backward_first = device % 2 != 0;
    const int score = kInterval * ((devices - 1) / 2 + 1), backward = score + kInterval * (devices - 1);
    return {.forward = kInterval * (device / 2) + (backward_first ? kBackward : 0),
            .score = score - 2,
            .gradients = score - 1,
            .backward = backward - kInterval * device + (backward_first ? 0 : kForward),
            .scatter = backward + kInterval};
}

// The tasks of a device by their starts. Of tasks with the same start, those come first that wait for a sum of an
// earlier micro-batch.
template <Starts (*starts_of)(int devices, int device), bool early_gradients = false>
Tasks in_order_of_starts(const Holding& own, const ScheduleOptions&) {
    const int devices = own.shape.devices;
    const Starts starts = starts_of(devices, own.device);
    const int embedding = own.stages[0], blocks = own.stages[1], head = own.stages[2];
    std::vector<std::pair<int, Task>> all;
    // The first `early` passes, the first of which starts at `first`, follow each other.
    const auto add = [&](int start, Op op, int stage, int early = 0, int first = 0) {
        for (int number = 0; number < std::ssize(own.microbatches); ++number)
            all.push_back({number < early ? first + kForward * number : start + kInterval * number,
                           {op, stage, own.microbatches[static_cast<std::size_t>(number)]}});
    };
    add(-kInterval, Op::Forward, embedding, devices, -kForward);
    add(starts.gradients, early_gradients ? Op::BackwardWeight : Op::Backward, head);
    add(starts.scatter, Op::Backward, embedding);
    add(starts.forward, Op::Forward, blocks, devices - own.device, kForward * own.device);
    add(starts.score, Op::Forward, head);
    if (early_gradients)
        add(starts.score, Op::BackwardInput, head);
    add(starts.backward, Op::Backward, blocks);
    std::ranges::stable_sort(all, {}, &std::pair<int, Task>::first);
    Tasks order;
    for (const auto& [start, task] : all)
        order.push_back(task);
    return order;
}

// T reads and writes a probability in fp32. S of vocab-2 also writes it in 16 bits, for the product with the weights.
constexpr double kScaled = 4 + 4, kConverted = 4 + 2;

}  // namespace

extern const Schedule kVocab1{.name = "vocab-1",
                              .summary = "1f1b with the head of a transformer divided among all devices, two sums each",
                              .origin = "Yeung et al., MLSys 2025, arXiv 2411.05288",
                              .placement = kParts,
                              .chunks = 3,
                              .bubble = "p (F+B) at most",
                              .in_flight = "min(m, p-d+2)",
                              .orders = on_each_device<in_order_of_starts<in_own_slots<2>>>,
                              .corrected = kScaled};

extern const Schedule kVocab2{.name = "vocab-2",
                              .summary = "vocab-1 with one sum: gradients of the head's input come early",
                              .origin = "Yeung et al., MLSys 2025, arXiv 2411.05288",
                              .placement = kParts,
                              .chunks = 3,
                              .bubble = "p F + (p-1) B at most",
                              .in_flight = "min(m, p-d+1)",
                              .orders = on_each_device<in_order_of_starts<in_own_slots<1>, true>>,
                              .corrected = kScaled + kConverted};

extern const Schedule kVocabInterlaced{
    .name = "vocab-interlaced",
    .summary = "1f1b between passes of the head that all devices run at the same time",
    .origin = "nnScaler, Lin et al., OSDI 2024",
    .placement = kParts,
    .chunks = 3,
    .bubble = "(p-1) (F+B)",
    .in_flight = "min(m, 3(p-d)/2)",
    .orders = on_each_device<in_order_of_starts<in_turns>>};

}  // namespace pw

#include "workloads/transformers/pair_times.h"

#include "workloads/bounded.h"
#include "workloads/transformers/layer_sum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pw {

namespace {

// A pass through the steps of time_of_both().
struct Progress {
    const PassSteps& steps;
    double left;  // seconds of the steps from `next` on
    std::size_t next = 0;
    double ready = 0;  // the end of the step before `next`

    bool is_over() const { return next == steps.size(); }
    bool sends() const { return steps[next].is_message; }
};

double seconds_of(const PassSteps& steps) {
    double sum = 0;
    for (const PassStep& step : steps)
        sum += step.seconds;
    return sum;
}

// A layer's forward has its rest, the message to the experts, the experts, and the message back.
void add_forward(PassSteps& steps, const TransformerLayerCost& layer) {
    const ExpertSeconds& experts = layer.expert_forward;
    steps.push_back({false, layer.forward - experts.messages - experts.computing});
    if (experts.messages > 0)
        steps.insert(steps.end(),
                     {{true, experts.messages / 2}, {false, experts.computing}, {true, experts.messages / 2}});
}

// A layer's backward is the same in reverse. What it repeats is in the rest.
void add_backward(PassSteps& steps, const TransformerLayerCost& layer) {
    const ExpertSeconds& experts = layer.expert_backward;
    if (experts.messages > 0)
        steps.insert(steps.end(),
                     {{true, experts.messages / 2}, {false, experts.computing}, {true, experts.messages / 2}});
    steps.push_back({false, layer.backward_input + layer.backward_weight - experts.messages - experts.computing});
}

}  // namespace

double time_of_both(const PassSteps& a, const PassSteps& b) {
    Progress first{a, seconds_of(a)}, second{b, seconds_of(b)};
    double free[2] = {0, 0};  // when the device can compute, and when it can send
    const auto start_of = [&](const Progress& pass) { return std::max(pass.ready, free[pass.sends() ? 1 : 0]); };
    const auto goes_before = [&](const Progress& one, const Progress& other) {
        if (one.is_over() || other.is_over())
            return other.is_over();
        const double own = start_of(one), its = start_of(other);
        return own != its ? own < its : one.left >= other.left;
    };
    while (!first.is_over() || !second.is_over()) {
        Progress& pass = goes_before(first, second) ? first : second;
        const PassStep& step = pass.steps[pass.next];
        pass.ready = free[step.is_message ? 1 : 0] = start_of(pass) + step.seconds;
        pass.left -= step.seconds;
        ++pass.next;
    }
    return std::max(first.ready, second.ready);
}

std::vector<std::optional<Ns>> pair_times(const TransformerJob& job, const StageSplit& split,
                                          const std::vector<int>& partner, int samples) {
    const std::vector<TransformerLayerCost> layers = TransformerLayers(job).all(samples);
    std::vector<PassSteps> forward(split.layers.size()), backward(split.layers.size());
    for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
        const std::vector<int>& own = split.layers[stage];
        for (auto layer = own.begin(); layer != own.end(); ++layer)
            add_forward(forward[stage], layers[static_cast<std::size_t>(*layer)]);
        for (auto layer = own.rbegin(); layer != own.rend(); ++layer)
            add_backward(backward[stage], layers[static_cast<std::size_t>(*layer)]);
    }
    std::vector<std::optional<Ns>> times;
    for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
        const PassSteps& other = backward[static_cast<std::size_t>(partner[stage])];
        const double sequential = seconds_of(forward[stage]) + seconds_of(other);
        // One of both lanes is busy at any time, so the rest of both passes is what runs at the same time.
        const double hidden = sequential - time_of_both(forward[stage], other);
        times.emplace_back();
        if (hidden > 1e-9)
            times.back() = bounded(std::ceil((sequential - hidden * (2 - kSlowedByMessages)) * 1e9));
    }
    return times;
}

}  // namespace pw

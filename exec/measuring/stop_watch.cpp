#include "exec/measuring/stop_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

Measured median_of(std::vector<Ns> values) {
    if (values.empty())
        return {};
    std::sort(values.begin(), values.end());
    const auto at = [&](double quantile) {
        return values[static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1) + 0.5)];
    };
    return {at(0.5), at(0.9) - at(0.1)};
}

Measured cost_of_marks(const Kernels& kernels, bool as_one) {
    if (kernels.on_host())
        return {};
    constexpr int kPairs = 201;
    std::vector<std::pair<Mark, Mark>> pairs;
    const auto make_pairs = [&] {
        for (int k = 0; k < kPairs; ++k) {
            const Mark start = kernels.mark();
            pairs.emplace_back(start, kernels.mark());
        }
    };
    as_one ? kernels.as_one(make_pairs)->run() : make_pairs();
    kernels.finish();
    std::vector<Ns> times;
    for (const auto& [start, end] : pairs)
        times.push_back(kernels.time_between(start, end));
    return median_of(std::move(times));
}

void PassTimes::add(int layer, Pass pass, bool accumulate, Ns time) {
    if (layer == kAllLayers) {
        whole_update_.push_back(time);
        return;
    }
    Row& row = layers_[layer];
    switch (pass) {
        case Pass::Forward:
            row.forward.push_back(time);
            break;
        case Pass::Input:
            (accumulate ? row.input_added : row.input).push_back(time);
            break;
        case Pass::Weight:
            (accumulate ? row.weight_added : row.weight).push_back(time);
            break;
        case Pass::Sum:
            row.sum.push_back(time);
            break;
        case Pass::Update:
            row.update.push_back(time);
            break;
    }
}

Measured PassTimes::without_excess(const std::vector<Ns>& times) const {
    Measured measured = median_of(times);
    measured.median = without_marks(measured.median, measured.median > 0 ? median_of(excess_).median : 0);
    return measured;
}

LayerTimes PassTimes::times(int layer) const {
    const Row& row = layers_[layer];
    LayerTimes times;
    times.forward = without_excess(row.forward);
    times.backward_input = without_excess(row.input);
    const std::size_t passes = row.input.size() + row.input_added.size();
    if (passes > 0)  // a layer may have several sums per pass
        times.backward_input.median +=
            without_excess(row.sum).median * static_cast<Ns>(row.sum.size()) / static_cast<Ns>(passes);
    times.backward_weight = without_excess(row.weight);
    times.backward = {times.backward_input.median + times.backward_weight.median,
                      times.backward_input.spread + times.backward_weight.spread};
    const Ns more = without_excess(row.input_added).median - without_excess(row.input).median +
                    without_excess(row.weight_added).median - times.backward_weight.median;
    times.accumulate.median = more;
    times.recompute = times.forward;
    return times;
}

std::vector<LayerTimes> PassTimes::all_times() const {
    std::vector<LayerTimes> all;
    Ns total = 0, above = 0;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        const Ns more = all.emplace_back(times(static_cast<int>(layer))).accumulate.median;
        total += more;
        above += std::max<Ns>(0, more);
    }
    const double kept = above > 0 ? static_cast<double>(std::max<Ns>(0, total)) / static_cast<double>(above) : 0;
    for (LayerTimes& times : all)
        times.accumulate.median = std::llround(kept * static_cast<double>(std::max<Ns>(0, times.accumulate.median)));
    return all;
}

Measured PassTimes::update(int layer, double share) const {
    if (whole_update_.empty())
        return without_excess(layers_[layer].update);
    const Measured whole = without_excess(whole_update_);
    const auto part = [&](Ns time) { return std::llround(share * static_cast<double>(time)); };
    return {part(whole.median), part(whole.spread)};
}

StopWatch::StopWatch(const Kernels& kernels, const LayerGraph& layers)
    : kernels_(kernels), layers_(layers), laps_(kernels.on_host()) {}

// The backward for inputs does nothing where another layer has done its work, where no layer reads the gradients, or
// where an add passes its gradient on in place.
bool StopWatch::works(int layer, Pass pass, const LayerArgs& args) const {
    if (pass != Pass::Input)
        return true;
    if (args.input_gradients.empty())
        return false;
    const Layer& own = layers_[static_cast<std::size_t>(layer)];
    if (!parameters_of(own).empty() && !has_weight_pass(own.kind))
        return true;  // it makes the gradients of the weights
    const bool in_place = own.kind == LayerKind::Add && !own.relu;
    return std::ranges::any_of(args.input_gradients, [&](const std::byte* gradient) {
        return gradient != nullptr && !(in_place && gradient == args.output_gradient);
    });
}

StopWatch::Calls StopWatch::collect(PassTimes& into) const {
    Calls all;
    for (const Call& call : calls_) {
        const Ns time = call.works ? std::max<Ns>(1, kernels_.time_between(call.start, call.end)) : 0;
        into.add(call.layer, call.pass, call.accumulate, time);
        all.time += time;
        all.number += call.works ? 1 : 0;
    }
    return all;
}

Ns StopWatch::time_between(Mark from, Mark to) const {
    return without_marks(kernels_.time_between(from, to), cost_of_marks_.median);
}

}  // namespace pw

// Costs of layers from FLOPs and bytes.
#include "workloads/bounded.h"
#include "workloads/costs/costs.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pw {

namespace {

// A product has its own rate.
Measured longer_of(double flops, double touched, const DeviceRates& rates, const Product* product = nullptr) {
    const double rate = product && rates.products ? rates.products->flops(*product) : rates.flops;
    const double seconds = std::max(flops / rate, touched / rates.memory_bandwidth);
    return {bounded(std::ceil(seconds * 1e9)), 0};
}

// Returns the elements of all tensors that a layer reads, per sample.
std::int64_t input_elements(const Layer& layer) {
    std::int64_t elements = 0;
    for (int position = 0; position < std::max(1, facts_of(layer.kind).inputs); ++position)
        elements += input_dims(layer, position).elements();
    return elements;
}

// Returns how many numbers F keeps of every row.
int numbers_per_row(Statistics statistics) {
    switch (statistics) {
        case Statistics::None:
        case Statistics::PerChannel:
            return 0;
        case Statistics::PerRow:
            return 2;
        case Statistics::DeviationPerRow:
            return 1;
    }
    return 0;
}

}  // namespace

LayerBytes analytic_bytes(const Layer& layer, int samples, Precision precision) {
    const NumberBytes& numbers = bytes_of(precision);
    const LayerFacts& facts = facts_of(layer.kind);
    const bool by_channel = facts.statistics == Statistics::PerChannel;
    const Bytes two_per_channel = by_channel ? 2 * kFloatBytes * layer.input.channels : 0;  // mean and deviation
    const Bytes of_rows = numbers_per_row(facts.statistics) * kFloatBytes * layer.input.height;
    const bool loss = is_loss(layer.kind);
    return {.weights = aligned(layer.parameters * (layer.frozen ? numbers.weight : numbers.parameter())),
            .statistics = aligned(two_per_channel),
            .output = loss ? 0 : aligned(bounded_product(layer.output.elements() * numbers.activation, samples)),
            .saved_until_input = aligned(
                bounded_sum(bounded_product(facts.mask_bytes(layer, numbers) + of_rows, samples), two_per_channel))};
}

LayerTimes analytic_times(const Layer& layer, int samples, const DeviceRates& rates, Precision precision,
                          Bytes gradient) {
    const NumberBytes& numbers = bytes_of(precision);
    assert(rates.flops > 0 && rates.memory_bandwidth > 0);
    const LayerFacts& facts = facts_of(layer.kind);
    const bool weighted = has_weight_pass(layer.kind);
    const double count = samples;
    const auto weights = static_cast<double>(layer.parameters * numbers.weight);  // bytes as doubles: exact up to 2^53
    const auto gradients = static_cast<double>(layer.parameters * gradient);
    const double output = static_cast<double>(layer.output.elements() * numbers.activation) * count;
    const double inputs = static_cast<double>(input_elements(layer) * numbers.activation) * count;
    const double mask = static_cast<double>(facts.mask_bytes(layer, numbers)) * count;
    const double again = rereads_input_for_input_gradient(layer.kind) ? inputs : 0;
    const int passes = facts.statistics == Statistics::PerChannel ? 2 : 1;  // its sums come before its outputs

    const std::optional<LayerProducts> products = products_of(layer, samples);
    const auto product = [&](Product LayerProducts::*pass) { return products ? &((*products).*pass) : nullptr; };

    LayerTimes times;
    times.forward = longer_of(layer.flops_forward * samples, passes * inputs + weights + output + mask, rates,
                              product(&LayerProducts::forward));
    if (!weighted || layer.flops_input > 0)  // no layer needs the gradient of the data
        times.backward_input =
            longer_of(layer.flops_input * samples, passes * (output + mask + again) + weights + inputs, rates,
                      product(&LayerProducts::input));
    if (weighted)
        times.backward_weight = longer_of(layer.flops_weight * samples, inputs + output + gradients, rates,
                                          product(&LayerProducts::weight));
    times.backward.median = bounded_sum(times.backward_input.median, times.backward_weight.median);
    times.accumulate = longer_of(0, 3 * gradients, rates);  // reads both, writes the sum
    times.recompute = times.forward;
    return times;
}

Profile analytic_profile(const Model& model, int samples, const DeviceRates& rates, const TrainingKind& training) {
    const NumberBytes& numbers = bytes_of(training.precision);
    const KeptBytes kept = training.kept();
    Profile profile;
    profile.model = model.name;
    profile.backend = kAnalytic;
    profile.input = model.input;
    profile.classes = model.classes;
    for (std::size_t number = 0; number < num_vertices(model.layers); ++number) {
        const Layer& layer = model.layers[number];
        profile.layers.push_back(
            {.name = layer.name,
             .times = {{samples, analytic_times(layer, samples, rates, training.precision, kept.gradient)}},
             .bytes = {{samples, analytic_bytes(layer, samples, training.precision)}},
             .update =
                 longer_of(0, static_cast<double>(update_bytes(kept)) * static_cast<double>(layer.parameters), rates)});
    }
    const Bytes data = aligned(bounded_product(model.input.elements() * numbers.activation, samples));
    profile.data[samples] = longer_of(0, static_cast<double>(data), rates);
    profile.data_bytes[samples] = data;
    return profile;
}

}  // namespace pw

#include "workloads/costs/costs.h"

#include "workloads/bounded.h"
#include "workloads/costs/cost_totals.h"
#include "workloads/error.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace pw {

namespace {

constexpr double kMost = 0x1p60;  // nanoseconds (36 years) or bytes, of all layers together

// Adds up one quantity of all layers, and refuses a total with which sums over stages could overflow.
class LargestLayer {
public:
    LargestLayer(const Profile& profile, const char* what, int samples)
        : profile_(profile), what_(what), samples_(samples) {}

    void add(const LayerProfile& layer, double value) {
        sum_ += value;
        if (!largest_ || value > most_) {
            largest_ = &layer;
            most_ = value;
        }
    }

    void check() const {
        if (sum_ <= kMost)
            return;
        const bool analytic = profile_.backend == kAnalytic;
        std::vector<Setting> settings{Setting::MicroBatchSize};
        if (analytic)
            settings = {Setting::ComputeRate, Setting::MemoryBandwidth, Setting::MicroBatchSize};
        fail_about(std::move(settings),
                   "a micro-batch of {} samples makes {:.4g} {} in all layers, and they are counted up to {:.4g}; "
                   "layer '{}' has most of them\n  help: {}take smaller micro-batches",
                   samples_, sum_, what_, kMost, largest_->name,
                   analytic ? "raise the rates of computing and of memory, or " : "");
    }

private:
    const Profile& profile_;
    const char* what_;
    int samples_;
    double sum_ = 0, most_ = 0;
    const LayerProfile* largest_ = nullptr;
};

// Returns the measured time of the backward, else the sum of its parts.
Ns backward_of(const LayerTimes& times) {
    if (times.backward.median > 0)
        return times.backward.median;
    return bounded_sum(times.backward_input.median, times.backward_weight.median);
}

// Returns the measured time of recomputation, else the time of a forward.
Ns recompute_of(const LayerTimes& times) {
    return times.recompute.median > 0 ? times.recompute.median : times.forward.median;
}

// The value at `samples` on the line through the two nearest measured sizes; with a single size, through zero. Never
// below 0.
template <class Value, class Get>
std::int64_t at_size(const std::map<int, Value>& by_size, int samples, Get get) {
    auto high = by_size.lower_bound(samples);
    if (high != by_size.end() && high->first == samples)
        return get(high->second);
    if (high == by_size.end())
        --high;
    if (by_size.size() == 1)
        return bounded(static_cast<double>(get(high->second)) * samples / high->first);
    if (high == by_size.begin())
        ++high;
    const auto low = std::prev(high);
    const auto start = static_cast<double>(get(low->second));
    const double slope = (static_cast<double>(get(high->second)) - start) / (high->first - low->first);
    return bounded(start + slope * (samples - low->first));
}

LayerBytes all_aligned(const LayerBytes& raw) {
    return {.weights = aligned(raw.weights),
            .frozen = aligned(raw.frozen),
            .statistics = aligned(raw.statistics),
            .output = aligned(raw.output),
            .saved_until_input = aligned(raw.saved_until_input),
            .kept_until_weight = aligned(raw.kept_until_weight),
            .gradient_until_weight = aligned(raw.gradient_until_weight),
            .scratch = aligned(raw.scratch),
            .joins = raw.joins};
}

// Returns the times of a layer without the passes that it leaves out (frozen_layers.h).
StageCost without_unused(const Layer& layer, StageCost cost) {
    if (!layer.input_pass)
        cost.backward_input = 0, cost.backward = layer.weight_pass ? cost.backward_weight : 0;
    if (!layer.weight_pass)
        cost.backward_weight = cost.update = cost.accumulate = 0, cost.backward = cost.backward_input;
    return cost;
}

void check_measured(const LayerProfile& layer) {
    if (layer.times.empty() || layer.bytes.empty())
        fail("profile: layer '{}' has no {}; measure it again", layer.name, layer.times.empty() ? "times" : "bytes");
}

StageCost layer_cost(const LayerProfile& layer, const std::map<int, LayerTimes>& measured, int samples) {
    const auto median = [&](Measured LayerTimes::*pass) {
        return at_size(measured, samples, [&](const LayerTimes& times) { return (times.*pass).median; });
    };
    return {.forward = median(&LayerTimes::forward),
            .backward = at_size(measured, samples, backward_of),
            .backward_input = median(&LayerTimes::backward_input),
            .backward_weight = median(&LayerTimes::backward_weight),
            .recompute = at_size(measured, samples, recompute_of),
            .update = layer.update.median,
            .accumulate = median(&LayerTimes::accumulate)};
}

bool has_neighbours(const std::vector<LayerProfile>& layers) {
    return std::none_of(layers.begin(), layers.end(), [](const LayerProfile& layer) { return layer.busy.empty(); });
}

// Shortens the times of `least` to the times of `costs`.
void shorten(std::vector<StageCost>& least, const std::vector<StageCost>& costs) {
    for (std::size_t layer = 0; layer < least.size(); ++layer)
        least[layer] = shorter_of(least[layer], costs[layer]);
}

}  // namespace

namespace {

double attention_of(const Layer& layer) { return is_attention(layer.kind) ? 1 : layer.attention; }

StageCost scaled(StageCost cost, double factor) {
    for (Ns StageCost::*const time : kLayerTimes)
        cost.*time = std::llround(static_cast<double>(cost.*time) * factor);
    return cost;
}

}  // namespace

StageCost& StageCost::operator+=(const StageCost& other) {
    for (Ns StageCost::*const time : kLayerTimes)
        this->*time += other.*time;
    sum_gradients += other.sum_gradients;
    gather_weights += other.gather_weights;
    if (other.pair)
        pair = pair.value_or(0) + *other.pair;
    return *this;
}

StageCost shorter_of(StageCost cost, const StageCost& other) {
    for (Ns StageCost::*const time : kLayerTimes)
        cost.*time = std::min(cost.*time, other.*time);
    return cost;
}

bool overlaps_pairs(const Costs& costs) {
    return costs.pair_exposed < 1 ||
           std::ranges::any_of(costs.stage, [](const StageCost& cost) { return cost.pair.has_value(); });
}

MicroBatchLength Costs::length_of(int microbatch, int on_stage) const {
    const auto number = static_cast<std::size_t>(microbatch), parts = std::max<std::size_t>(1, slices.size());
    MicroBatchLength length = lengths.empty() ? MicroBatchLength{} : lengths[number / parts % lengths.size()];
    if (slices.empty())
        return length;
    const MicroBatchLength& share = slices[number % parts][static_cast<std::size_t>(on_stage)];
    length.forward *= share.forward;
    length.backward_input *= share.backward_input;
    length.backward_weight *= share.backward_weight;
    length.bytes *= share.bytes;
    return length;
}

// Digits beyond the last digit of a double do not round a size up.
Bytes scaled_bytes(Bytes bytes, double length) {
    return length == 1 ? bytes : bounded(std::ceil(static_cast<double>(bytes) * length * (1 - kRounding)));
}

std::shared_ptr<const Cluster> default_cluster() {
    static const auto cluster = std::make_shared<const Cluster>(ClusterFacts{});
    return cluster;
}

Ns ring_sum(int holders, Bytes bytes, const Link& link) {
    const int steps = 2 * (holders - 1);
    const Ns moving = bounded(static_cast<double>(bytes) * steps / holders / link.bandwidth * 1e9);
    return bounded_sum(bounded_product(steps, link.latency), moving);
}

bool is_measured(const Profile& profile) { return !profile.backend.empty() && profile.backend != kAnalytic; }

bool has_times(const LayerProfile& layer, int samples) {
    return layer.times.contains(samples) || std::all_of(layer.times.begin(), layer.times.end(),
                                                        [](const auto& times) { return times.second == LayerTimes{}; });
}

LayerBytes raw_bytes(const LayerProfile& layer, int samples) {
    check_measured(layer);
    const auto size = [&](Bytes LayerBytes::*member) {
        return at_size(layer.bytes, samples, [&](const LayerBytes& bytes) { return bytes.*member; });
    };
    const LayerBytes& any = layer.bytes.begin()->second;
    return {.weights = any.weights,  // these, and `joins`, do not depend on the size
            .frozen = any.frozen,
            .statistics = any.statistics,
            .output = size(&LayerBytes::output),
            .saved_until_input = size(&LayerBytes::saved_until_input),
            .kept_until_weight = size(&LayerBytes::kept_until_weight),
            .gradient_until_weight = size(&LayerBytes::gradient_until_weight),
            .scratch = size(&LayerBytes::scratch),
            .joins = any.joins};
}

std::vector<Ns> layer_times(const LayerGraph& graph, const Profile& profile, int samples) {
    std::vector<Ns> times;
    LargestLayer sum(profile, "nanoseconds", samples);
    for (const LayerProfile& layer : profile.layers) {
        check_measured(layer);
        times.push_back(at_size(layer.times, samples, [&](const LayerTimes& measured) {
            const StageCost cost =
                without_unused(graph[times.size()], {.forward = measured.forward.median,
                                                     .backward = backward_of(measured),
                                                     .backward_input = measured.backward_input.median,
                                                     .backward_weight = measured.backward_weight.median});
            return bounded_sum(cost.forward, cost.backward);
        }));
        sum.add(layer, static_cast<double>(times.back()));
    }
    sum.check();
    return times;
}

void check_profile(const Model& model, const Profile& profile) {
    constexpr auto kWayOut = "measure one for this workload with `pipewright profile`";
    if (profile.model != model.name)
        fail("the profile is of model '{}', not '{}'\n  help: {}", profile.model, model.name, kWayOut);
    if (profile.input != model.input)
        fail("the profile is for samples of {}, not {}\n  help: {}", print(profile.input), print(model.input), kWayOut);
    if (profile.classes != model.classes)
        fail("the profile is for {} classes, not {}\n  help: {}", profile.classes, model.classes, kWayOut);
    const std::size_t layers = num_vertices(model.layers);
    for (std::size_t layer = 0; layer < std::min(layers, profile.layers.size()); ++layer)
        if (profile.layers[layer].name != model.layers[layer].name)
            fail("layer {} of the profile is '{}', of the model '{}'\n  help: {}", layer, profile.layers[layer].name,
                 model.layers[layer].name, kWayOut);
    if (profile.layers.size() != layers)
        fail("the profile has {} layers, the model {}\n  help: {}", profile.layers.size(), layers, kWayOut);
    for (const LayerProfile& layer : profile.layers)
        check_measured(layer);
    if (profile.data.empty() || profile.data_bytes.empty())
        fail("the profile has no costs of the input data\n  help: {}", kWayOut);
}

CostTable::CostTable(const Model& model, const Profile& profile, int samples)
    : model_(model), profile_(profile), has_neighbours_(has_neighbours(profile.layers)) {
    for (const std::vector<LayerProfile>& layers : profile.of_makes)
        has_neighbours_ = has_neighbours_ || has_neighbours(layers);
    check_profile(model, profile);
    shortest_ = costs_of(profile.layers, samples);
    for (const std::vector<LayerProfile>& layers : profile.of_makes) {
        LayerCosts& costs = of_makes_.emplace_back(costs_of(layers, samples));
        shorten(shortest_.alone, costs.alone);
        shorten(shortest_.busy, costs.busy);
        if (!std::ranges::equal(layers, profile.layers, {}, &LayerProfile::bytes, &LayerProfile::bytes))
            for (std::size_t layer = 0; layer < layers.size(); ++layer)
                costs.bytes.push_back(
                    without_unused(model_.layers[layer], all_aligned(raw_bytes(layers[layer], samples))));
    }
    LargestLayer times(profile, "nanoseconds", samples), sizes(profile, "bytes", samples);
    for (const LayerProfile& layer : profile.layers) {
        for (const LayerCosts* costs : all_costs())
            for (const std::vector<StageCost>* all : {&costs->alone, &costs->busy})
                if (!all->empty())
                    times.add(layer, all_times_of((*all)[bytes_.size()]));
        bytes_.push_back(without_unused(model_.layers[bytes_.size()], all_aligned(raw_bytes(layer, samples))));
        sizes.add(layer, all_bytes_of(bytes_.back()));
        interpolated_ = interpolated_ || !has_times(layer, samples);
    }
    const bool reads_data =
        std::any_of(profile.data.begin(), profile.data.end(), [](const auto& data) { return data.second.median > 0; });
    interpolated_ = interpolated_ || (reads_data && !profile.data.contains(samples));
    data_time_ = at_size(profile.data, samples, [](const Measured& data) { return data.median; });
    data_bytes_ = aligned(at_size(profile.data_bytes, samples, [](Bytes size) { return size; }));
    times.add(profile.layers.front(), static_cast<double>(data_time_));
    sizes.add(profile.layers.front(), static_cast<double>(data_bytes_));
    times.check();
    sizes.check();
}

CostTable::LayerCosts CostTable::costs_of(const std::vector<LayerProfile>& layers, int samples) const {
    LayerCosts costs;
    for (std::size_t number = 0; number < layers.size(); ++number) {
        const LayerProfile& layer = layers[number];
        const auto cost_of = [&](const std::map<int, LayerTimes>& measured) {
            StageCost cost = without_unused(model_.layers[number], layer_cost(layer, measured, samples));
            if (!model_.layers[number].recomputed)
                cost.recompute = 0;
            return cost;
        };
        costs.alone.push_back(cost_of(layer.times));
        if (has_neighbours_)
            costs.busy.push_back(cost_of(layer.busy.empty() ? layer.times : layer.busy));
    }
    return costs;
}

std::vector<const CostTable::LayerCosts*> CostTable::all_costs() const {
    std::vector<const LayerCosts*> all;
    for (const LayerCosts& costs : of_makes_)
        all.push_back(&costs);
    return all.empty() ? std::vector{&shortest_} : all;
}

StageCost CostTable::stage_cost(const std::vector<int>& layers, const std::vector<StageCost>& costs) const {
    StageCost sum;
    bool reads_data = false;
    for (const int layer : layers) {
        sum += costs[layer];
        reads_data = reads_data || in_degree(layer, model_.layers) == 0;
    }
    if (reads_data)
        sum.forward += data_time_;
    return sum;
}

Costs CostTable::times_of(const StageSplit& split) const {
    Costs costs;
    static_cast<MakeCosts&>(costs) = times_of(split, shortest_);
    for (const LayerCosts& of_make : of_makes_)
        costs.of_makes.push_back(times_of(split, of_make));
    for (const std::vector<int>& layers : split.layers) {
        StageCost& attention = costs.attention.emplace_back();
        for (const int layer : layers)
            attention += scaled(shortest_.alone[layer], attention_of(model_.layers[layer]));
        StageBytes& bytes = costs.bytes.emplace_back();
        for (const int layer : layers)
            bytes.weights += bytes_[layer].weights, bytes.frozen += bytes_[layer].frozen;
    }
    costs.edges = edge_bytes(model_.layers, split, bytes_);
    costs.neighbours = profile_.neighbours;
    costs.dispatch = profile_.dispatch.median;
    costs.sent_copies = profile_.sent_copies;
    costs.interpolated = interpolated_;
    return costs;
}

MakeCosts CostTable::times_of(const StageSplit& split, const LayerCosts& costs) const {
    MakeCosts times;
    for (const std::vector<int>& layers : split.layers) {
        times.stage.push_back(stage_cost(layers, costs.alone));
        if (!costs.busy.empty())
            times.busy.push_back(stage_cost(layers, costs.busy));
    }
    return times;
}

Costs CostTable::costs_of(const StageSplit& split) const {
    Costs costs = times_of(split);
    costs.bytes = bytes_of_stages(model_.layers, split, bytes_, data_bytes_);
    for (std::size_t make = 0; make < of_makes_.size(); ++make)
        if (!of_makes_[make].bytes.empty())
            costs.of_makes[make].sizes = bytes_of_stages(model_.layers, split, of_makes_[make].bytes, data_bytes_);
    return costs;
}

Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, int samples) {
    return CostTable(model, profile, samples).costs_of(split);
}

HeldState held_state_of(int stage, int holders, const Costs& costs) {
    const StageBytes& bytes = costs.bytes[static_cast<std::size_t>(stage)];
    if (bytes.training)
        return {bytes.weights, bytes.training->gradients, bytes.training->states, bytes.frozen};
    const auto part_of = [&](Bytes all) { return holders == 1 ? all : aligned((all + holders - 1) / holders); };
    HeldState state = held_of_weights(bytes.weights, part_of(bytes.weights), costs.kept, costs.zero);
    state.frozen = costs.zero >= 3 ? part_of(bytes.frozen) : bytes.frozen;
    return state;
}

}  // namespace pw

// Random models, profiles and configs for tests that compare a search with trying everything.
#pragma once

#include "job/config/config.h"
#include "tests/support/bidirectional.h"
#include "tests/support/dice.h"
#include "workloads/costs/costs.h"
#include "workloads/models/frozen_layers.h"

#include <algorithm>
#include <string>
#include <vector>

namespace pw {

// Up to ten layers: chains with branches that meet again.
inline Model random_model(Random& random) {
    Model model{"random", {8, 1, 1}, 8, {}};
    const auto add = [&](LayerKind kind, const std::vector<int>& inputs) {
        Layer layer{"layer" + std::to_string(num_vertices(model.layers)), kind, {8, 1, 1}, {8, 1, 1}};
        return add_layer(model.layers, layer, inputs);
    };
    std::vector<int> open = {add(LayerKind::Linear, {})};
    const int middle = pick(random, 1, 5);
    for (int made = 0; made < middle; ++made) {
        const int input = pick(random, 0, static_cast<int>(num_vertices(model.layers)) - 1);
        const int next =
            add(pick(random, 0, 1) ? LayerKind::Linear : LayerKind::Relu, {pick(random, 0, 2) ? open.back() : input});
        std::erase(open, inputs_of_layer(model.layers, next).front());
        open.push_back(next);
    }
    while (open.size() > 1) {
        const int sum = add(LayerKind::Add, {open[open.size() - 2], open.back()});
        open.resize(open.size() - 2);
        open.push_back(sum);
    }
    add(LayerKind::CrossEntropy, open);
    return model;
}

// Freezes some of the first layers, but not all linear layers.
inline void freeze_layers(Model& model, Random& random) {
    const int layers = static_cast<int>(num_vertices(model.layers)), end = pick(random, 1, layers - 1);
    int trained = 0;
    for (int layer = 0; layer < layers; ++layer)
        trained += model.layers[layer].kind == LayerKind::Linear ? 1 : 0;
    for (int layer = 0; layer < end; ++layer)
        if (model.layers[layer].kind == LayerKind::Linear && trained > 1 && pick(random, 0, 3) > 0) {
            model.layers[layer].frozen = true;
            --trained;
        }
    set_frozen(model.layers, {});
}

inline Profile random_profile(const Model& model, Random& random) {
    Profile profile = analytic_profile(model, 1, {});
    profile.backend = "random";
    const int dispatch = pick(random, 0, 1);
    profile.dispatch.median = dispatch * pick(random, 0, 5);
    for (LayerProfile& layer : profile.layers)
        for (const int samples : {1, 2, 4}) {
            LayerTimes& times = layer.times[samples];
            times.forward.median = pick(random, 0, 40) * samples;
            times.backward_input.median = pick(random, 0, 40) * samples;
            times.backward_weight.median = pick(random, 0, 40) * samples;
            times.backward.median = times.backward_input.median + times.backward_weight.median - pick(random, 0, 3);
            times.backward.median = std::max<Ns>(1, times.backward.median);
            times.recompute = times.forward;
            times.accumulate.median = pick(random, 0, 4);
            layer.update.median = pick(random, 0, 10);
            const auto size = [&](int most) { return Bytes{64} * pick(random, 0, most); };
            const bool weighted = has_weight_pass(LayerKind::Linear);
            layer.bytes[samples] = {.weights = weighted ? size(6) : 0,
                                    .output = 64 + size(8) * samples,
                                    .saved_until_input = size(4) * samples,
                                    .kept_until_weight = size(4) * samples,
                                    .gradient_until_weight = size(4) * samples,
                                    .scratch = size(3)};
        }
    for (LayerProfile& layer : profile.layers)
        for (const int samples : {2, 4})
            layer.bytes[samples].weights = layer.bytes[1].weights;
    for (const int samples : {2, 4}) {
        profile.data[samples] = profile.data[1];
        profile.data_bytes[samples] = profile.data_bytes[1] * samples;
    }
    return profile;
}

inline Config random_config(Random& random, const std::string& schedule) {
    Config config;
    config.workload.model = "random";
    config.pipeline.schedule = schedule;
    config.pipeline.own_schedule = {std::shared_ptr<void>(), &kBidirectional};  // for configs whose search names it
    config.cluster.devices.resize(static_cast<std::size_t>(pick(random, 1, 4)));
    if (pick(random, 0, 1))
        for (DeviceConfig& device : config.cluster.devices)
            device.memory = pick(random, 2, 60) * 512;
    config.cluster.link_given = true;
    config.cluster.link.latency = pick(random, 0, 1) * pick(random, 0, 60);
    if (pick(random, 0, 1))
        config.cluster.link.bandwidth = 1e9 * pick(random, 1, 40);
    config.search.mini_batch = schedule == "pipedream" ? pick(random, 1, 2) : 4;
    config.search.micro_batch_sizes = {1, 2};
    config.search.schedules = {schedule};
    // one of the dimensions that multiply the choices
    const int more = pick(random, 0, 5);
    config.search.recompute = more == 0 ? SearchConfig::Recompute::Auto : SearchConfig::Recompute::None;
    if (const int how = more == 0 ? pick(random, 0, 2) : -1; how == 0)
        config.search.recompute_saved = {0, 1};
    else if (how == 1)
        config.search.recompute_ahead = {0, 1};
    else if (how == 2)
        config.search.recompute_layers = {{"layer0", "layer2"}, {"layer1"}};
    config.search.replicas = more == 1 ? SearchConfig::Replicas::Yes : SearchConfig::Replicas::No;
    if (more == 2)
        for (DeviceConfig& device : config.cluster.devices)
            device.speed = std::vector<double>{0.3, 0.7, 1, 1.4}[static_cast<std::size_t>(pick(random, 0, 3))];
    if (pick(random, 0, 2) == 0)
        config.run.transport = RunConfig::Transport::Link;  // senders keep copies, and lists wait for them
    if (pick(random, 0, 3) == 0)
        config.run.fan_out_gradients = RunConfig::FanOutGradients::Layer;
    config.training.steps = 6;
    return config;
}

}  // namespace pw

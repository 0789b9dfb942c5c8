// The profile of a config, with the times of every make of its devices.
#include "job/build.h"
#include "job/cost_source.h"
#include "job/makes.h"
#include "job/settings.h"
#include "workloads/error.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Lengthens times to the longer ones of both.
void lengthen(std::vector<LayerProfile>& layers, const std::vector<LayerProfile>& others) {
    const auto lengthen_times = [](std::map<int, LayerTimes>& times, const std::map<int, LayerTimes>& other_times) {
        for (auto& [samples, time] : times)
            if (const auto other = other_times.find(samples); other != other_times.end())
                for (Measured LayerTimes::*const pass :
                     {&LayerTimes::forward, &LayerTimes::backward_input, &LayerTimes::backward_weight,
                      &LayerTimes::backward, &LayerTimes::accumulate, &LayerTimes::recompute})
                    if ((other->second.*pass).median > (time.*pass).median)
                        time.*pass = other->second.*pass;
    };
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        lengthen_times(layers[layer].times, others[layer].times);
        lengthen_times(layers[layer].busy, others[layer].busy);
        if (others[layer].update.median > layers[layer].update.median)
            layers[layer].update = others[layer].update;
    }
}

Profile profile_on_one_make(const Setup& setup, const Model& model) {
    Profile profile = in_cluster(cost_source_of(setup).profile(setup, model), setup);
    if (!setup.cluster.profile.empty())
        try {
            check_profile(model, profile);
        } catch (const Error& error) {
            fail_at(setup, "cluster.profile", error, "measure one for this workload, or remove the key");
        }
    return profile;
}

// Devices of several makes have the times of each of them.
Profile profile_of_makes(const Setup& setup, const Model& model) {
    std::optional<Profile> all;
    const std::vector<PlanMake> makes = makes_of_plan(setup);
    for (const PlanMake& together : makes) {
        std::vector<LayerProfile> layers;
        for (const int make : together.makes) {
            const Setup alike = of_make(setup, make, together);
            Profile own = profile_on_one_make(alike, model);
            if (model_file(alike.workload.model) != ModelFile::None) {
                own.model = model.name;
                try {
                    check_profile(model, own);
                } catch (const Error& error) {
                    fail_at(setup, "cluster.hosts", error, "name a file with the same layers");
                }
            }
            if (layers.empty())
                layers = own.layers;
            else
                lengthen(layers, own.layers);
            if (!all)
                all = std::move(own);
        }
        if (makes.size() > 1)
            all->of_makes.push_back(std::move(layers));
        else
            all->layers = std::move(layers);
    }
    return *all;
}

// Returns the profile of a model of layers with the weights as training keeps them. The sizes of transformers are of
// these weights.
Profile in_kept_types(Profile profile, const Setup& setup) {
    if (keeps_blocks(setup) || cost_source_of(setup).has_groups)
        return profile;
    for (LayerProfile& layer : profile.layers)
        for (auto& [samples, bytes] : layer.bytes)
            bytes.weights = kept_weights(bytes.weights, setup);
    return profile;
}

}  // namespace

Profile profile_of(const Setup& setup, const Model& model) {
    return in_kept_types(
        makes_of_plan(setup).empty() ? profile_on_one_make(setup, model) : profile_of_makes(setup, model), setup);
}

}  // namespace pw

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

// Devices of several makes have the times of each of them.
Profile profile_of_makes(const Setup& setup, const Model& model) {
    std::optional<Profile> all;
    const std::vector<PlanMake> makes = makes_of_plan(setup);
    for (const PlanMake& together : makes) {
        std::vector<LayerProfile> layers;
        for (const int make : together.makes) {
            const Setup alike = of_make(setup, make, together);
            Profile own = profile_of(alike, model);
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

}  // namespace

Profile profile_of(const Setup& setup, const Model& model) {
    if (!makes_of_plan(setup).empty())
        return profile_of_makes(setup, model);
    Profile profile = in_cluster(cost_source_of(setup).profile(setup, model), setup);
    if (!setup.cluster.profile.empty())
        try {
            check_profile(model, profile);
        } catch (const Error& error) {
            fail_at(setup, "cluster.profile", error, "measure one for this workload, or remove the key");
        }
    return profile;
}

}  // namespace pw

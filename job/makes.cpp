#include "job/makes.h"

#include "workloads/costs/profiled_model.h"

#include <algorithm>

namespace pw {

std::vector<PlanMake> makes_of_plan(const Setup& setup) {
    if (setup.cluster.makes.empty() && setup.parallel.of_stages.empty())
        return {};
    if (!setup.parallel.makes.empty())
        return setup.parallel.makes;
    std::vector<PlanMake> makes;
    for (int make = 0; make < std::ssize(setup.cluster.makes); ++make)
        makes.push_back({{make}, {}});
    return makes;
}

Setup of_make(const Setup& setup, int make) { return of_make(setup, make, {{}, setup.parallel.degrees}); }

Setup of_make(const Setup& setup, int make, const PlanMake& together) {
    Setup alike = setup;
    alike.parallel.degrees = together.degrees;
    alike.parallel.of_stages.clear();
    ClusterConfig& cluster = alike.cluster;
    if (cluster.makes.empty())
        return alike;
    static_cast<DeviceMake&>(cluster) = setup.cluster.makes[static_cast<std::size_t>(make)];
    cluster.makes.clear();
    alike.parallel.per_host = cluster.per_host;
    const auto way_out = [](const DeviceMake& of) {
        return of.between_hosts ? of.adapters * of.between_hosts->bandwidth : 0;
    };
    for (const int other : together.makes) {
        const DeviceMake& of = setup.cluster.makes[static_cast<std::size_t>(other)];
        alike.parallel.per_host = std::min(alike.parallel.per_host, of.per_host);
        if (way_out(of) < way_out(cluster)) {
            cluster.between_hosts = of.between_hosts;
            cluster.adapters = of.adapters;
        }
    }
    if (model_file(setup.workload.model) != ModelFile::None && !cluster.profile.empty()) {
        alike.workload.model = cluster.profile;  // the same layers, with their times on these devices
        cluster.profile.clear();
    }
    return alike;
}

}  // namespace pw

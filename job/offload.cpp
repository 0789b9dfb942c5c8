#include "job/offload.h"

#include "job/cost_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

void check_offload(const Setup& setup, const Profile& profile) {
    const Offloading& offload = setup.pipeline.offload;
    if (offload.is_empty())
        return;
    if (!setup.cluster.host_link && profile.host_link == Link{})
        setup.fail_at(offload.stages.empty() ? "pipeline.offload_states" : "pipeline.offload",
                      "how fast a device copies to the memory of its host is not known",
                      "write cluster.host_link: {bandwidth: 25 GB/s}, or measure a profile");
}

void offload_stages(Costs& costs, const Setup& setup) {
    for (const int stage : setup.pipeline.offload.stages) {
        if (std::ranges::binary_search(setup.pipeline.recompute.stages, stage))
            setup.fail_at("pipeline.offload", fmt::format("stage {} is recomputed and saves nothing", stage),
                          "leave the stage out of pipeline.offload or pipeline.recompute");
        StageBytes& bytes = costs.bytes[static_cast<std::size_t>(stage)];
        bytes.offloaded_until_input = std::exchange(bytes.until_input, 0);
        bytes.offloaded_until_weight = std::exchange(bytes.until_weight, 0);
    }
}

void offload_in_part(Costs& costs, const Setup& setup) {
    const double share = setup.pipeline.offload_share;
    if (share == 1)
        return;
    const auto keep = [&](Bytes& offloaded, Bytes& kept) {
        const Bytes moved = aligned(static_cast<Bytes>(std::ceil(share * static_cast<double>(offloaded))));
        kept += std::max<Bytes>(0, offloaded - moved);
        offloaded = std::min(offloaded, moved);
    };
    for (const int stage : setup.pipeline.offload.stages) {
        StageBytes& bytes = costs.bytes[static_cast<std::size_t>(stage)];
        keep(bytes.offloaded_until_input, bytes.first_until_input);
        keep(bytes.offloaded_until_weight, bytes.first_until_weight);
    }
}

}  // namespace pw

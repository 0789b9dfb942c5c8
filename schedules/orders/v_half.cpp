#include "schedules/orders/building_block.h"

namespace pw {

namespace {

// V-Half (Qi et al., 2024): micro-batches go down at half speed, and everything else follows without waiting.
BuildingBlock half_block(int p, int d) {
    const int shift = p % 2 == 0 ? 3 : 0;  // else two passes would have one slot
    return {2 * d, 3 * p - d - 2, 3 * p + 2 * d - 1 + shift, 6 * p - d - 2 + shift};
}

std::vector<Tasks> v_half(const Request& request) {
    return orders_of_blocks(request.shape, half_block, (request.shape.devices + 2) / 2 * 2);
}

}  // namespace

extern const Schedule kVHalf{.name = "v-half",
                             .aliases = "vhalf",
                             .summary = "two stages per device in a V: about half the activations of 1f1b",
                             .origin = "Qi et al. 2024, arXiv 2405.15362",
                             .placement = kV,
                             .chunks = 2,
                             .bubble = "<= (p-1) (F+B) / 2 when F=I=W, m>=p",
                             .in_flight = "min(m, (p+2) div 2) until W",
                             .orders = v_half};

}  // namespace pw

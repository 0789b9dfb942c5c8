#include "schedules/orders/building_block.h"

namespace pw {

namespace {

// V-Min (Qi et al., 2024): a micro-batch goes down, up and back without waiting, so that its activations live as short
// as they can.
BuildingBlock min_block(int p, int d) {
    const int shift = p % 3 == 0 ? 2 : 0;  // else two passes would have one slot
    return {d, 2 * p - d - 1, 2 * p + d + shift, 4 * p - d - 1 + shift};
}

std::vector<Tasks> v_min(const Request& request) {
    return orders_of_blocks(request.shape, min_block, (request.shape.devices + 4) / 3 * 2);
}

}  // namespace

extern const Schedule kVMin{.name = "v-min",
                            .aliases = "vmin",
                            .summary = "two stages per device in a V: about a third of the activations of 1f1b",
                            .origin = "Qi et al. 2024, arXiv 2405.15362",
                            .placement = kV,
                            .chunks = 2,
                            .bubble = "<= 2 (p-1) (F+B) / 3 when F=I=W, m>=p",
                            .in_flight = "min(m, (p+4) div 3) until W",
                            .orders = v_min};

}  // namespace pw

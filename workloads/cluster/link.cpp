#include "workloads/cluster/link.h"

#include "workloads/bounded.h"

#include <algorithm>

namespace pw {

double bandwidth_for(double bytes, const Link& link) {
    const std::vector<SizedBandwidth>& table = link.by_size;
    if (table.empty())
        return link.half_size == 0 ? link.bandwidth
                                   : link.bandwidth * bytes / (bytes + static_cast<double>(link.half_size));
    const auto above = std::find_if(table.begin(), table.end(), [&](const SizedBandwidth& entry) {
        return static_cast<double>(entry.bytes) >= bytes;
    });
    if (above == table.begin() || above == table.end())
        return above == table.end() ? table.back().bandwidth : above->bandwidth;
    const auto time_of = [](const SizedBandwidth& entry) { return static_cast<double>(entry.bytes) / entry.bandwidth; };
    const SizedBandwidth& below = *(above - 1);
    const double part = (bytes - static_cast<double>(below.bytes)) / static_cast<double>(above->bytes - below.bytes);
    return bytes / (time_of(below) + part * (time_of(*above) - time_of(below)));
}

Ns occupation_of(Bytes bytes, const Link& link, double most) {
    if (bytes == 0)
        return 0;
    const auto all = static_cast<double>(bytes);
    return bounded(all / std::min(bandwidth_for(all, link), most) * 1e9);
}

}  // namespace pw

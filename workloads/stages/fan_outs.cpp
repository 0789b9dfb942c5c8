#include "workloads/stages/fan_outs.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace pw {

void sort_for_sum(std::vector<Contribution>& contributions) {
    std::sort(contributions.begin(), contributions.end(), [](const Contribution& a, const Contribution& b) {
        return std::tie(a.group, a.reader, a.position) > std::tie(b.group, b.reader, b.position);
    });
}

std::vector<Addition> additions_of(const std::vector<Contribution>& contributions) {
    std::vector<Addition> additions;
    int after = std::numeric_limits<int>::max();  // the lowest local reader so far
    for (std::size_t first = 0, end = 0; first < contributions.size(); first = end) {
        for (end = first + 1; end < contributions.size() && contributions[end].group == contributions[first].group;
             ++end)
            additions.push_back({end, first, contributions[end].reader});
        if (contributions[first].local)
            after = std::min(after, contributions[end - 1].reader);
        if (first > 0)
            additions.push_back({first, 0, after});
    }
    return additions;
}

}  // namespace pw

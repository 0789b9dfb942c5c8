#include "report/error_of_rank.h"

#include "exec/ranks/control_connection.h"
#include "exec/ranks/ranks.h"
#include "job/launched_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace pw {

namespace {

std::string stages_of_rank(const Shape& shape) {
    const auto [rank, ranks] = launched_ranks();
    const RankMap map(shape.devices, rank, ranks);
    std::set<int> stages;
    for (int device = 0; device < shape.devices; ++device)
        if (map.is_here(device))
            for (const int stage : shape.stages_of(device))
                stages.insert(stage);
    return fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
}

}  // namespace

void as_this_rank(const Job& job, const std::function<void()>& act) {
    try {
        act();
    } catch (const StoppedByOthers&) {
        throw;
    } catch (const Error& error) {
        throw ErrorOfRank(error, stages_of_rank(job.plan.shape));
    }
}

}  // namespace pw

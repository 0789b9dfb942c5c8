// Searches for the objectives of published planners, each in its own cost model: max-load, pipedream, piper.
#pragma once

#include "job/setup/search_setup.h"
#include "report/json.h"
#include "search/deadline.h"
#include "search/partition.h"
#include "viz/plot.h"

#include <string>
#include <vector>

namespace pw {

struct PartitionSearch {
    SearchConfig::Objective objective;
    Partition partition;                   // without stages where none fits: then its shortage says why
    std::vector<std::string> layers = {};  // their names
    bool in_seconds = false;               // the unit of the objective (else the instance's own)
    double seconds = 0;                    // that the search took
};

// Solves the `search.objective` of the setup, which is not makespan. Throws Error (BadInput) where the model
// or a key does not suit the objective.
PartitionSearch search_partition(const SearchSetup& setup, const SearchLimits& limits = {});

void require_stages(const PartitionSearch& search);  // throws Error (Infeasible) where no partition fits

Json to_json(const PartitionSearch& search);
std::string to_text(const PartitionSearch& search);  // the table of the stages, and the proof (needs stages)
// Returns the time of every stage, and the objective: the longest time of a stage or of a transfer between stages.
Chart chart_of(const PartitionSearch& search);

}  // namespace pw

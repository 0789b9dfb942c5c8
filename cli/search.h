// What a search found, for people and for other programs.
#pragma once

#include "cli/prediction.h"
#include "cli/report.h"
#include "search/plans/makespan.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// What is to be reported. `best` is the best plan worked out, when there is one.
struct SearchReport {
    const SearchProblem& problem;
    const SearchResult& result;
    const std::optional<Job>& best;
};

// The best plans, with the proof of how good the first one is.
std::string print(const SearchReport& report, std::size_t most);
Json json_of(const SearchReport& report, double seconds);
// The best config as YAML for `file`, where its paths start, with what was found in comments.
std::string print_yaml(const SearchProblem& problem, const SearchResult& result, const std::string& file);
// Peak memory against step time of all plans, with the Pareto front.
void plot_search(const SearchResult& result, const std::string& file);

// Stages as Megatron-LM's --pipeline-model-parallel-layout writes them: E the embedding, t a transformer layer, L the
// loss, stages split by '|'. Of a gpt whose stages hold whole blocks, and of a layer graph with an embedding, where
// every other layer counts as t. Else, and when a stage is no range of the forward order, empty.
std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);
// As torch.distributed.pipelining takes it: empty likewise, and when a stage does not begin with a module.
std::string pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);

// The objectives of other planners: max-load, pipedream, piper. Prints and returns; throws Error (Infeasible) when
// nothing fits.
struct ObjectiveArguments {
    bool json = false;
    double seconds = 0;  // 0: no limit given
    std::string output, plot;
};
void search_objective(const Config& config, const ObjectiveArguments& arguments);

}  // namespace pw

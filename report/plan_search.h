// Tells what a search found, to people and to other programs.
#pragma once

#include "report/notes.h"
#include "report/report.h"
#include "search/plans/makespan.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// What is to be reported. `best` is the job of the best plan, when there is one.
struct SearchReport {
    const SearchProblem& problem;
    const SearchResult& result;
    const std::optional<Job>& best;
};

// Prints the best plans, with the proof of how good the first one is.
std::string print(const SearchReport& report, std::size_t most);
Json json_of(const SearchReport& report, double seconds);
// Returns the best config as YAML for `file`, relative to which its paths are written, with what was found in comments.
std::string print_yaml(const SearchProblem& problem, const SearchResult& result, const std::string& file);
// Draws peak memory against step time of all plans, with the Pareto front.
void plot_search(const SearchResult& result, const std::string& file);

// Returns stages as Megatron-LM's --pipeline-model-parallel-layout writes them: E the embedding, t a transformer layer,
// L the loss, with the last norm and the output layer; stages split by '|'. There is a layout for a gpt and for a layer
// graph with an embedding whose stages hold whole blocks. Which layer is what, `part` says, else its name; all others
// of a layer graph are t, those of one block ("h.3.attn", "h.3.mlp") together. The last stage has the L of a graph
// without one. Where a stage would be empty, or is no range of the forward order, there is none.
std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);
// Returns stages as torch.distributed.pipelining takes them: empty likewise, and when a stage does not begin with a
// module.
std::string pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);

// Works out the objectives of other planners: max-load, pipedream, piper. It prints and returns; it throws Error
// (Infeasible) when nothing fits.
struct ObjectiveArguments {
    bool json = false;
    double seconds = 0;  // 0 where no limit is given
    std::string output, plot;
};
void search_objective(const Config& config, const ObjectiveArguments& arguments);

}  // namespace pw

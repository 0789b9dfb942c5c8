// A way to train a model on a cluster: everything that a search chooses, except where a layer graph is cut.
#pragma once

#include "job/setup/search_setup.h"
#include "schedules/orders/schedule.h"
#include "workloads/stages/stage_split.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct PlanChoice {
    std::string schedule;
    // Layer graphs: numbers of the setup's devices, in the order of the stages. Transformers: empty.
    std::vector<int> devices = {};
    int stages = 1;
    int micro_batches = 1, micro_batch_size = 1;  // transformers: of each replica
    int offloaded = 0, offload_ahead = 1;         // number of first stages that are offloaded, and of Offloading
    int slices = 1;                               // of each micro-batch
    SliceLengths slice_lengths = SliceLengths::Even;
    // Layer graphs.
    int recomputed = 0;        // number of first stages that are recomputed: they hold the most micro-batches
    int saved = 0, ahead = 0;  // of Recomputation
    std::vector<std::string> layers = {};  // names of the recomputed layers of these stages (empty: all)
    std::vector<int> replicas = {};        // per stage (empty: one each)
    int copies = 1;                        // of the whole pipeline
    // Transformers.
    Parallel degrees = {};                 // of all stages, or of the first device if stages differ
    std::vector<Parallel> of_stages = {};  // by device of the pipeline, where they differ (else empty)
    std::vector<int> blocks = {};          // of each stage (empty: even_blocks())
    std::vector<int> hosts = {};           // by number, in the order in which stages are placed (empty: as in the file)
    bool operator==(const PlanChoice&) const = default;

    bool is_of_transformer() const { return devices.empty(); }
    bool is_data_parallel() const { return stages == 1 && devices.size() > 1; }  // a single stage on several devices
    int chunks() const { return stages / degrees.pipeline; }                     // transformers: stages of each device
};

// Returns the names of the schedules that the setup's search tries.
std::vector<std::string> searched_schedules(const SearchSetup& setup);
// Returns the row of such a schedule. Throws Error (BadInput) at its key.
const Schedule& searched_schedule(const SearchSetup& setup, const std::string& name);

// Returns 0, 1, …, the numbers of this many first stages.
std::vector<int> first_stages(int count);
// Returns the bytes that a device keeps of each parameter during a whole step. Offloaded states are there for a part of
// the step.
KeptBytes kept_in_bounds(const Setup& setup);
// Returns whether plans of the setup's search copy to the memory of the hosts.
bool searches_offload(const SearchSetup& setup);
// Throws Error (BadInput) if plans copy to hosts and the link is not known, or if pipeline.offload_states lists some
// stages: all plans of a search offload the states of all their stages, or of none. `measured` is the link of a
// profile.
void check_searched_offload(const SearchSetup& setup, const Link& measured);

// The share of pipeline.effort with which the orders of every split are found, for schedules that find orders by costs.
// The best split gets all of it.
inline constexpr double kEffortOfSplit = 0.05;

// Returns the setup with this choice in it. A transformer's setup is ready for make_job. The setup of a layer graph
// still needs the split.
Setup setup_of(const Setup& setup, const PlanChoice& choice);
// Returns the first layer of each later stage. An empty stage has the first layer of the next stage. Returns nothing if
// a stage is not a range of the forward order.
std::optional<std::vector<int>> starts_of_ranges(const StageSplit& split);
// Sets a split as the setup writes it: as cuts if every stage is a range of the forward order, else as lists.
void set_split(PipelineConfig& pipeline, const LayerGraph& graph, const StageSplit& split);

// Prints a choice as "1f1b, 4 stages on 4 devices, 8 micro-batches of 4". A single stage on several devices is "data
// parallel on 4 devices, 8 micro-batches of 4, 1f1b". A transformer's choice is "interleaved, tensor 4, pipeline 4 x 5
// stages, context 2, data 4, micro-batches of 1, zero 1".
std::string print(const PlanChoice& choice);
// Layer graphs: returns what follows the sizes, or with data parallelism the schedule: "replicas 2 1, 1 of the stages
// recomputed". Empty if nothing follows.
std::string print_variant(const PlanChoice& choice);
// Transformers: prints a degree as "4", or as "4|2" if the devices of the pipeline differ.
std::string print_degree(const PlanChoice& choice, Degree degree);

// The degrees of a transformer's choice and the size of its micro-batches, in the order in which they are printed.
struct ChoicePart {
    std::string name;   // heading of its column: "pipeline"
    std::string value;  // cell of this column: "4 x 5"
    std::string text;   // in a sentence: "pipeline 4 x 5 stages"
    std::string mark;   // in a chart: "PP4\u00d75"
    bool of_experts = false, of_offload = false;
    bool is_said = true;                        // in a sentence
    bool (*says)(const PlanChoice&) = nullptr;  // in a table if any plan does (null: always)
};
std::vector<ChoicePart> parts_of(const PlanChoice& choice);

}  // namespace pw

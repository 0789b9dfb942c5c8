// One way to run a model: everything that a search chooses except the split.
#pragma once

#include "job/setup/search_setup.h"
#include "schedules/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct PlanChoice {
    std::string schedule;
    std::vector<int> devices;  // numbers of the setup's devices, in the order of the stages
    int stages = 1;
    int micro_batches = 1, micro_batch_size = 1;
    int recomputed = 0;        // number of first stages that are recomputed: they hold the most micro-batches
    int saved = 0, ahead = 0;  // of Recomputation
    std::vector<std::string> layers = {};  // those of these stages that are recomputed, by their names; empty: all
    std::vector<int> replicas = {};        // per stage; when empty, one each
    int copies = 1;                        // of the whole pipeline
    bool operator==(const PlanChoice&) const = default;

    bool is_data_parallel() const { return stages == 1 && devices.size() > 1; }  // one stage on several devices
};

// Returns the names of the schedules that the setup's search tries.
std::vector<std::string> searched_schedules(const SearchSetup& setup);
// Returns the row of one of them. Throws Error (BadInput) at its key.
const Schedule& searched_schedule(const SearchSetup& setup, const std::string& name);

// The share of pipeline.effort with which the orders of every split are found, for schedules that find them by costs.
// The best split gets all of it.
inline constexpr double kEffortOfSplit = 0.05;

// Returns the setup with this choice in it; the split is still to be set.
Setup setup_of(const Setup& setup, const PlanChoice& choice);
// Returns the first layer of each later stage. An empty stage has the first layer of the next stage. Returns nothing if
// a stage is not a range of the forward order.
std::optional<std::vector<int>> starts_of_ranges(const StageSplit& split);
// Sets a split as the setup writes it: as cuts if every stage is a range of the forward order, else as lists.
void set_split(PipelineConfig& pipeline, const LayerGraph& graph, const StageSplit& split);

// Prints a choice as "1f1b, 4 stages on 4 devices, 8 micro-batches of 4"; one stage on several devices is "data
// parallel on 4 devices, 8 micro-batches of 4, 1f1b".
std::string print(const PlanChoice& choice);
// Returns what follows the sizes and, of data parallelism, the schedule: "replicas 2 1, 1 of the stages recomputed";
// empty if nothing does.
std::string print_variant(const PlanChoice& choice);

struct ChoiceLimits {
    // Ways to share out the devices among the stages: if there are more for a number of stages, only some are tried.
    std::int64_t shares = 512;
    // Orders of devices that are not alike, for each way to share them out; few if only the network distinguishes them:
    // all have the same bounds, and the best one is seldom far from the order of the setup.
    std::size_t orders = 720, network_orders = 6;
};

// All choices of `setup.search`, in a fixed order: schedules, micro-batch sizes, stages, orders of devices that are
// not alike, recomputed stages and how, replicas. Data parallelism, one stage on all devices, is one of them unless the
// config has search.replicas. Throws Error (BadInput) at the key that leaves nothing to try. If there are too many ways
// to give every stage its devices, only some are tried: orders_of() the devices; equal shares of all devices, of half
// as many, a quarter, ...
struct Choices {
    std::vector<PlanChoice> all;
    struct Partial {
        PlanChoice like;      // schedule, sizes and stages of which some ways are missing; on all devices
        bool shares = false;  // some of the missing ones have replicas
        // Every missing choice differs from one of `all` only in the order of devices that the network alone
        // distinguishes.
        bool only_network = false;
    };
    std::vector<Partial> partial;
    std::vector<std::string> notes;  // for the user
    bool complete() const { return partial.empty(); }
};
Choices choices_of(const SearchSetup& setup, int layers, const ChoiceLimits& limits = {});

}  // namespace pw

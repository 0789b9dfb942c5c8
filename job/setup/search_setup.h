// What a search is made of: the setup, and the choices that it may make.
#pragma once

#include "job/setup/setup.h"
#include "workloads/transformers/degrees.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// In search.schedules and `compare --schedules`: all schedules.
inline constexpr std::string_view kAllSchedules = "all";

// The search uses the pipeline's values for keys that the file does not have.
struct SearchConfig {
    enum class Objective { Makespan, MaxLoad, PipeDream, Piper } objective = Objective::Makespan;
    std::vector<std::string> schedules;  // names, or only kAllSchedules (empty: the pipeline's)
    std::vector<int> micro_batch_sizes;  // empty: the pipeline's
    std::int64_t mini_batch = 0;         // samples per update (default: the pipeline's)
    std::vector<int> stages;             // numbers of stages to try (empty: the pipeline's)
    // devices of a stage: one, any number, the same number for all stages
    enum class Replicas { No, Yes, Equal } replicas = Replicas::No;
    enum class Recompute { None, All, Auto } recompute = Recompute::None;
    std::vector<int> recompute_saved, recompute_ahead;  // Recomputation::saved and ahead to try (empty: 0)
    // values of PipelineConfig::recompute_layers to try (empty: the pipeline's)
    std::vector<std::vector<std::string>> recompute_layers;
    Recompute offload = Recompute::None;
    std::vector<int> offload_ahead;  // Offloading::ahead to try (empty: 1)
    bool cheapest_layers = false;    // tries the layers that save most for their time, instead
    // The following keys are for transformers on a cluster. An empty list means the usual values (search/clusters).
    DegreeLists degrees;
    std::vector<int> chunks;
    std::vector<int> slices;  // of schedules that cut sequences
    std::vector<SliceLengths> slice_lengths;
    bool unequal_blocks = true;      // gives stages unequal numbers of blocks, too
    bool arrange_hosts = true;       // puts hosts that differ into other orders, too, and leaves some out
    std::optional<Program> program;  // that must run the plans (absent: any, or none)
    double tokens = 0;               // of the whole training (0: not given)
    double price = 0;                // of a device for an hour (0: not given)
    bool tensor_parallel = true;     // piper: several devices may share a layer
    // The following keys are for the objective PipeDream.
    struct Level {
        int devices = 1;
        double bandwidth = 0;  // bytes per second, between the groups of the next inner level
        bool operator==(const Level&) const = default;
    };
    enum class P2p { Charged, Free } p2p = P2p::Charged;
    bool straight = false;  // a single device per stage
    bool memory_limit = false;
    std::vector<Level> levels;  // innermost first (empty: all devices are on one level)
};
template <>
inline constexpr Choice<SearchConfig::Objective> kChoices<SearchConfig::Objective>[] = {
    {"makespan", SearchConfig::Objective::Makespan},
    {"max-load", SearchConfig::Objective::MaxLoad},
    {"pipedream", SearchConfig::Objective::PipeDream},
    {"piper", SearchConfig::Objective::Piper}};
template <>
inline constexpr Choice<SearchConfig::Recompute> kChoices<SearchConfig::Recompute>[] = {
    {"none", SearchConfig::Recompute::None},
    {"all", SearchConfig::Recompute::All},
    {"auto", SearchConfig::Recompute::Auto}};
template <>
inline constexpr Choice<SearchConfig::Replicas> kChoices<SearchConfig::Replicas>[] = {
    {"equal", SearchConfig::Replicas::Equal}};  // false and true are the remaining choices
template <>
inline constexpr Choice<SearchConfig::P2p> kChoices<SearchConfig::P2p>[] = {{"charged", SearchConfig::P2p::Charged},
                                                                            {"free", SearchConfig::P2p::Free}};

// Returns whether the search may use any schedule that trains as the pipeline's does.
bool searches_all_schedules(const SearchConfig& search);

struct SearchSetup : Setup {
    SearchConfig search;
};

// Returns whether `search` chooses how the devices of a cluster share a transformer.
bool searches_cluster(const SearchSetup& setup);

}  // namespace pw

// What a search chooses for a transformer on a cluster: how the devices share it, and the schedule of their pipelines.
#pragma once

#include "job/setup/search_setup.h"

#include <string>
#include <vector>

namespace pw {

struct ClusterChoice {
    std::string schedule;
    int chunks = 1;                        // stages of each device
    int micro_batch_size = 1;              // sequences
    Parallel degrees;                      // of all stages; if stages differ, of the first device
    std::vector<Parallel> of_stages = {};  // by device of the pipeline, where they differ; else empty
    std::vector<int> blocks = {};          // of each stage; empty: as evenly as possible (even_blocks)
    std::vector<int> hosts = {};           // by number, in the order in which stages are placed; empty: as in the file

    int stages() const { return degrees.pipeline * chunks; }
    bool operator==(const ClusterChoice& other) const;
};

// Print a degree, or what is recomputed, as "4", or as "4|2" if the devices of the pipeline differ.
std::string print_degree(const ClusterChoice& choice, int Parallel::*degree);
std::string print_recomputed(const ClusterChoice& choice);
// Prints a choice as "interleaved, tensor 4, pipeline 4 x 5 stages, context 2, data 4, micro-batches of 1, zero 1".
std::string print(const ClusterChoice& choice);

// Returns the setup with this choice in it, ready for make_job.
Setup setup_of(const SearchSetup& setup, const ClusterChoice& choice);

}  // namespace pw

// The readers behind load_config, one per block of the file. Each notes its mistakes in the source.
#pragma once

#include "job/config/config.h"
#include "job/config/read.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

inline constexpr int kMostDevices = 1'000'000;
inline constexpr int kMostStages = 65'536;
inline constexpr Bytes kLargestSize = Bytes{1} << 50;  // largest size of one tensor or one set of weights
inline constexpr std::int64_t kMostBatches = 1'000'000;

std::string absolute_path(const std::string& folder, const std::string& path);
// Complains that "X is not in this version".
void not_in_this_version(const Yaml& at, const std::string& what, const std::string& help);

// Reads the block `workload`. Times of a uniform one that were given as one number have one entry until
// `spread_uniform`.
WorkloadConfig read_workload(const Yaml& workload, const std::string& folder, std::vector<StageClaim>& claims);
void spread_uniform(UniformWorkload& uniform, int stages);

// Reads the block `cluster`.
ClusterConfig read_cluster(const Yaml& cluster, const std::string& folder);

// Reads a link: its name, or a map, which may have further keys.
Link read_link(const Yaml& at, std::vector<std::string_view> further = {});
// Reads links, shared and switches of the block `cluster`, whose devices and hosts are known.
void read_network(const Yaml& at, ClusterConfig& cluster);
std::string print_network(const ClusterConfig& cluster);

PipelineConfig read_pipeline(const Yaml& pipeline, const std::string& folder, std::vector<StageClaim>& claims);
// Read pipeline.micro_batch_lengths: the CSV, and what the key is, a list or the path of a CSV.
std::vector<MicroBatchLength> read_lengths_file(const std::string& path);
std::vector<MicroBatchLength> read_lengths(const Yaml& lengths, const std::string& folder);
std::string print_lengths(const std::vector<MicroBatchLength>& lengths);
// Reads pipeline.recompute, once the number of stages is known.
std::vector<int> read_recompute(const Yaml& recompute, int stages);

TransferMode read_transfer(const Yaml& transfer);

SearchConfig read_search(const Yaml& search);
std::string print_search(const SearchConfig& search);

// Reads the block `sweep`. Every axis has values; whether its key exists, loading with an override tells.
std::vector<SweepAxis> read_sweep(const Yaml& sweep);

// Returns a text as YAML on one line: it is plain where YAML cannot take it for anything else, else in JSON's quotes.
std::string quoted(const std::string& text);

}  // namespace pw

// The layers that all readers of model files make.
#pragma once

#include "workloads/costs/profiled_model.h"
#include "workloads/text/yaml.h"

#include <map>
#include <memory>

namespace pw {

inline constexpr std::size_t kMostLayers = 65'536;
inline constexpr Ns kLongestLayer = 1'000'000'000'000;  // 17 minutes: sums over all layers stay far from overflow
inline constexpr Bytes kLargestLayer = Bytes{1} << 45;  // 32 TiB

struct PassTimes {
    Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
    Ns forward_spread = 0, backward_spread = 0;  // of measured times
};

// Divides B, a whole backward, into I and W, backwards for inputs and for weights.
void share_backward(PassTimes& times, Bytes weights);
ProfiledModel empty_profiled_model(const std::string& path);
// Adds a layer that reads layers `inputs`. Sizes are for `samples`.
void add_profiled_layer(ProfiledModel& to, const std::string& name, const std::vector<int>& inputs,
                        const std::map<int, PassTimes>& times, const LayerBytes& bytes, int samples);

ProfiledModel read_graph_txt(std::shared_ptr<Source> source, int samples);
ProfiledModel read_layer_yaml(std::shared_ptr<Source> source, int samples);
ProfiledModel read_layer_csv(std::shared_ptr<Source> source, int samples);
ProfiledModel read_metis_json(std::shared_ptr<Source> source, int samples);
ProfiledModel read_galvatron_json(std::shared_ptr<Source> source, const FileModelOptions& options);
// Reads {samples, layers} from a tree: of YAML, or made of the rows of a table.
ProfiledModel read_layer_tree(const Yaml& root, int samples);

}  // namespace pw

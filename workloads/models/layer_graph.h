// A model as a graph of layers. Vertices are numbered in forward order, which is a topological order. Edges run from
// the layer that makes a tensor to the layer that reads the tensor. A layer without in-edges reads the data batch. The
// loss layer is the last layer and reads the labels, too.
// A sequence of tokens is a tensor of one channel: a row per token, as wide as the token's vector.
#pragma once

#include "workloads/models/layer_kind.h"
#include "workloads/models/layer_part.h"
#include "workloads/models/precision.h"
#include "workloads/units.h"

#include <boost/graph/adjacency_list.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Batch norm, layer norm and RMS norm add this to a variance before they take its root.
inline constexpr double kNormEpsilon = 1e-5;

// Dims are the shape of a tensor per sample.
struct Dims {
    int channels = 0;
    int height = 1;
    int width = 1;
    std::int64_t elements() const { return std::int64_t{channels} * height * width; }
    bool operator==(const Dims&) const = default;
};
std::string print(const Dims& dims);  // "3x224x224"

struct Layer {
    std::string name;  // torchvision's for built-in models: "layer3.0.downsample.0"
    LayerKind kind;
    Dims input;                               // shape of the first input, per sample
    Dims output;                              // per sample, {1, 1, 1} for the loss
    int kernel = 1, stride = 1, padding = 0;  // square: of convolution and max pool
    bool relu = false;                        // batch norm and add: ReLU on the output
    bool bias = true;                         // row linear
    int heads = 1;                            // attention, rotary
    int key_value_heads = 1;                  // grouped attention: each for heads / key_value_heads heads
    double rotary_base = 0;                   // rotary: angles of a pair fall from 1 to nearly 1 / base per position
    int vocabulary = 0;                       // embedding: rows of its table
    double probability = 0;                   // dropout
    int slices = 1;                           // of a sequence: input and output are of a single slice
    std::string tied_to = {};                 // row linear without bias: the embedding whose table it shares
    // `finish_layer` derives the rest from the fields above.
    std::int64_t parameters = 0;  // trained numbers, with a shared table, because the layer has a copy
    // FLOPs per sample: 2 per multiply-accumulate of convolutions and linear layers. Memory bounds all other layers.
    double flops_forward = 0, flops_input = 0, flops_weight = 0;
    std::optional<LayerPart> part = {};  // as its file says
    double attention = 0;                // part of a profiled layer's passes that is causal attention
    // Whether R remakes the tensors that the layer's F saves, in a recomputed stage. Else the tensors are kept.
    bool recomputed = true;
    bool offloaded = false;   // what its F saves may leave the device until the backward (then R does not remake it)
    bool frozen = false;      // its parameters are not trained
    bool has_weights = true;  // Profiled: its file gives it weights, or its backward pass time for their gradients
    // `set_frozen` derives these from `frozen`, of all layers of the graph: whether the backward pass does what the
    // kind of the layer does for gradients of its inputs, and of its parameters.
    bool input_pass = true, weight_pass = true;
};

// Returns whether a layer has a backward pass: gradients of its parameters or of tensors before it are needed.
inline bool has_backward(const Layer& layer) { return layer.input_pass || layer.weight_pass; }
// The facts of the layer's kind, if the layer runs the pass.
inline bool rereads_input_for_input_gradient(const Layer& layer) {
    return layer.input_pass && rereads_input_for_input_gradient(layer.kind);
}
inline bool has_weight_pass(const Layer& layer) { return layer.weight_pass && has_weight_pass(layer.kind); }
inline bool rereads_input_for_weight_gradient(const Layer& layer) { return has_weight_pass(layer); }

struct LayerInput {
    int position = 0;  // which input of the reader the tensor is
};

// The numbers of layers by name, for find_layer().
struct LayerNumbers {
    std::map<std::string, int, std::less<>> by_name;
};

using LayerGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Layer, LayerInput, LayerNumbers>;

// The layout of a loss's classes: an image has them along the channels and a label per pixel, a sequence (one channel)
// has them along its rows and a label per row. Distances are in elements of a plain sample.
struct LossShape {
    std::int64_t classes, positions;
    std::int64_t class_stride, position_stride;
};
LossShape loss_shape(const Layer& loss);

void finish_layer(Layer& layer, bool reads_data);  // fills the derived fields

// Adds a layer that reads `inputs` in this order (none: the data batch) and returns its number. Throws Error (BadInput)
// when the name is taken, a shape does not fit, or `tied_to` names no embedding of this shape.
int add_layer(LayerGraph& graph, Layer layer, const std::vector<int>& inputs);

// Returns the shape of input `position`: `Layer::input`, except for the second input of a concat, and for keys and
// values of grouped attention.
Dims input_dims(const Layer& layer, int position);
std::vector<int> inputs_of_layer(const LayerGraph& graph, int layer);   // by position
std::vector<int> readers_of_layer(const LayerGraph& graph, int layer);  // ascending, each once
int find_layer(const LayerGraph& graph, std::string_view name);         // -1 when absent

struct Model {
    std::string name;
    Dims input;  // shape of a sample
    int classes = 0;
    LayerGraph layers;
};

int labels_per_sample(const Model& model);  // the number of labels that the model's loss takes

// Returns the model of one of equal slices of the sequences. It has the parameters of the whole model.
Model cut_in_slices(const Model& model, int slices);

}  // namespace pw

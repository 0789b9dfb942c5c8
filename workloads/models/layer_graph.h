// A model as a graph of layers. Vertices are numbered in forward order, which is a topological
// order; edges run from the layer that makes a tensor to the layer that reads it. A layer without
// in-edges reads the data batch; the loss layer is the last one and reads the labels too.
// A sequence of tokens is a tensor of one channel: a row per token, as wide as the token's vector.
#pragma once

#include "workloads/units.h"

#include <array>
#include <boost/graph/adjacency_list.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace pw {

enum class LayerKind {
    Convolution,  // no bias
    BatchNorm,    // training: statistics of the micro-batch, evaluation: running averages; optional fused ReLU
    Relu,
    Add,     // of two tensors of equal shape; optional fused ReLU
    Concat,  // of two tensors of equal height and width, along the channels
    MaxPool,
    AveragePool,       // global: to 1x1
    Upsample,          // nearest neighbour, `stride` times as high and wide
    Linear,            // flattens its input; with bias
    Dropout,           // zeroes values with `probability`, scales the others; evaluation: does nothing
    Embedding,         // data: a token number per row; makes that row of its table
    PositionBias,      // adds a learned vector to every row, by its position
    LayerNorm,         // of every row; with scale and shift
    Gelu,              // exact, by the error function
    RowLinear,         // of every row; `bias` or not; may share another layer's table (tied_to)
    Attention,         // causal self-attention of `heads` heads: rows of queries, keys, values -> rows
    CrossEntropy,      // softmax cross-entropy, the loss: the mean over the positions of a sample
    MeanSquaredError,  // against one-hot labels, the loss: the mean over a sample's values
    Profiled,          // known by times and sizes only: nothing can compute it
};

inline constexpr Bytes kFloatBytes = 4;  // of one element of a tensor

// What batch norm and layer norm add to a variance before they take its root.
inline constexpr double kNormEpsilon = 1e-5;

// Shape of a tensor per sample.
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
    Dims input;                               // of the first input, per sample
    Dims output;                              // per sample; the loss has {1, 1, 1}
    int kernel = 1, stride = 1, padding = 0;  // square; convolution and max pool
    bool relu = false;                        // batch norm and add: ReLU on the output
    bool bias = true;                         // row linear
    int heads = 1;                            // attention
    int vocabulary = 0;                       // embedding: rows of its table
    double probability = 0;                   // dropout
    std::string tied_to = {};                 // row linear without bias: the embedding whose table it shares
    // Derived from the fields above by `finish_layer`; fp32, plain layout; all but the parameters
    // per sample. A backend's own sizes replace the bytes (LayerBytes).
    Bytes parameter_bytes = 0;    // trainable
    Bytes saved_until_input = 0;  // read again by I: inputs and masks
    Bytes kept_until_weight = 0;  // read again by W
    // 2 per multiply-accumulate of convolutions and linear layers; the others are bound by memory.
    double flops_forward = 0, flops_input = 0, flops_weight = 0;
};

struct LayerInput {
    int position = 0;  // which input of the reader the tensor is
};

using LayerGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Layer, LayerInput>;

std::string_view name_of(LayerKind kind);

bool is_loss(LayerKind kind);

// Which later pass reads a layer's input tensors again. The same for every backend.
bool rereads_input_for_input_gradient(LayerKind kind);   // norms, ReLU, GELU, attention, profiled
bool rereads_input_for_weight_gradient(LayerKind kind);  // where W is not empty
bool has_weight_pass(LayerKind kind);                    // convolution, linear, row linear, embedding

// What a loss tells apart: an image has its classes along the channels and a label per pixel, a sequence
// (one channel) has them along its rows and a label per row. Distances are in elements of a plain sample.
struct LossShape {
    std::int64_t classes, positions;
    std::int64_t class_stride, position_stride;
};
LossShape loss_shape(const Layer& loss);

// Plain layout, per sample: what F writes for I beside the tensors: masks and the places of maxima (a byte
// per element), the probabilities of attention and of the loss.
Bytes mask_bytes(const Layer& layer);

void finish_layer(Layer& layer, bool reads_data);  // fills the derived fields

// Adds a layer that reads `inputs` in this order (none: the data batch) and returns its number.
// Throws Error (BadInput) when the name is taken, a shape does not fit, or `tied_to` names no embedding
// of that shape.
int add_layer(LayerGraph& graph, Layer layer, const std::vector<int>& inputs);

// The shape of input `position`: that of `Layer::input`, but of a concat's second.
Dims input_dims(const Layer& layer, int position);
std::vector<int> inputs_of_layer(const LayerGraph& graph, int layer);   // by position
std::vector<int> readers_of_layer(const LayerGraph& graph, int layer);  // ascending, each once
int find_layer(const LayerGraph& graph, std::string_view name);         // -1 when absent

struct Model {
    std::string name;
    Dims input;  // of a sample
    int classes = 0;
    LayerGraph layers;
};

int labels_per_sample(const Model& model);  // what its loss takes

// v1.5: the stride sits in the 3x3 (torchvision). Throws Error (BadInput) for images below 32x32.
Model build_resnet50(int image_size, int classes, LayerKind loss = LayerKind::CrossEntropy);
// Its family: bottleneck blocks per group, and channels of the first group's inner convolutions.
struct ResNetShape {
    std::array<int, 4> blocks = {3, 4, 6, 3};
    int width = 64;
};
Model build_resnet(const std::string& name, const ResNetShape& shape, int image_size, int classes,
                   LayerKind loss = LayerKind::CrossEntropy);
// Linear layers of these hidden widths and then `classes`, a ReLU after every one, and after the hidden ones
// a dropout when its probability is not 0.
Model build_mlp(Dims input, int classes, const std::vector<int>& hidden = {512, 512},
                LayerKind loss = LayerKind::CrossEntropy, double dropout = 0);
// A label per pixel. Two 3x3 convolutions with batch norm and ReLU per level, down `levels` times by max
// pools while the channels double from `base_channels`, and back up beside the tensors of the way down.
// Throws Error (BadInput) when `levels` halvings do not divide the image.
Model build_unet(int image_size, int base_channels, int levels, int classes, LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw

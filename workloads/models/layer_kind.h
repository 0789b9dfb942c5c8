// The kinds of layers, and a row of facts for each: every fact about a kind that is the same for all backends.
#pragma once

#include "workloads/models/precision.h"
#include "workloads/units.h"

#include <string_view>
#include <vector>

namespace pw {

struct Layer;
struct ParameterShape;

enum class LayerKind {
    Convolution,  // no bias
    BatchNorm,    // training: statistics of the micro-batch, evaluation: running averages (optional fused ReLU)
    Relu,
    Add,     // adds two tensors of equal shape (optional fused ReLU)
    Concat,  // joins two tensors of equal height and width, along the channels
    MaxPool,
    AveragePool,       // global: to 1x1
    Upsample,          // nearest neighbour, `stride` times as high and wide
    Linear,            // flattens its input, with bias
    Dropout,           // zeroes values with `probability`, scales the rest (evaluation: does nothing)
    Embedding,         // data: a token number per row, output: the table's row of that number
    PositionBias,      // adds a learned vector to every row, by its position
    LayerNorm,         // normalises every row, with scale and shift
    Gelu,              // exact, by the error function
    RowLinear,         // linear layer on every row, `bias` or not, may share another layer's table (tied_to)
    Attention,         // causal self-attention of `heads` heads: rows of queries, keys, values -> rows
    GroupedAttention,  // the same of three tensors: queries of `heads` heads, keys and values of `key_value_heads`
    Rotary,            // turns pairs of values of every head by angles in proportion to the row's position
    RmsNorm,           // divides every row by its root mean square, with scale
    GatedSilu,         // silu of the first tensor, times the second
    CrossEntropy,      // softmax cross-entropy, the loss: the mean over the positions of a sample
    MeanSquaredError,  // against one-hot labels, the loss: the mean over a sample's values
    Profiled,          // known by times and sizes only: nothing can compute it
    Last = Profiled,   // the table of facts ends with it
};

// PyTorch's models write such a layer as a module or as a function. Only modules have names in PyTorch.
enum class LayerRole { Module, Function, Loss };

// The later pass that reads a layer's input tensors again. A layer with a pass for weight gradients has
// ByWeightGradient. Other layers with parameters compute the gradients of parameters together with the gradients of
// inputs.
enum class Reread { Never, ByInputGradient, ByWeightGradient };

// The values of which F, forward, keeps mean and deviation for the backward pass, of a row perhaps the deviation only.
enum class Statistics { None, PerChannel, PerRow, DeviationPerRow };

// The rows of its inputs that a row of a layer's output depends on, if its tensors are sequences.
enum class RowsRead { Own, UpToOwn, Any };

struct LayerFacts {
    LayerKind kind;
    std::string_view name;  // for people
    LayerRole role;
    int inputs;  // tensors that the layer reads, 0: any number
    Reread reread;
    Statistics statistics;
    RowsRead rows;
    // The parameters include shared ones (Layer::tied_to): the layer has a copy of them.
    std::vector<ParameterShape> (*parameters)(const Layer& layer);
    double (*multiply_accumulates)(const Layer& layer);  // of the forward F, per sample
    int input_gradient_products;  // multiply-accumulates of I, backward for inputs, for each of F
    // Returns the bytes that F writes for I in addition to tensors and statistics, in plain layout and per sample:
    // masks and the positions of maxima (a byte per element), the probabilities of attention and of the loss.
    Bytes (*mask_bytes)(const Layer& layer, const NumberBytes& numbers);
};

const LayerFacts& facts_of(LayerKind kind);

std::string_view name_of(LayerKind kind);
bool is_loss(LayerKind kind);
bool is_attention(LayerKind kind);  // causal
bool rereads_input_for_input_gradient(LayerKind kind);
bool rereads_input_for_weight_gradient(LayerKind kind);
bool has_weight_pass(LayerKind kind);  // whether W, backward for weights, does anything

}  // namespace pw

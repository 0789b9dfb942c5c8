// Where every tensor of a stage lives, as offsets into a few regions whose sizes are known before
// the first step. One function serves the prediction (sizes) and the executor (sizes and offsets).
#pragma once

#include "workloads/stages/stage_bytes.h"
#include "workloads/stages/stage_split.h"

#include <vector>

namespace pw {

// The sizes of a layer at a micro-batch size in a backend's own layout. Every size is a multiple of 64, so that offsets
// stay aligned. The letters are F, forward, R, recomputation, I and W, backwards for inputs and for weights.
struct LayerBytes {
    Bytes weights = 0;                // trained parameters
    Bytes frozen = 0;                 // parameters without gradients and states of the optimizer
    Bytes statistics = 0;             // running averages: neither trained nor versioned
    Bytes output = 0;                 // the tensor that the layer makes, with a gradient of the same size
    Bytes saved_until_input = 0;      // own state written by F (and R), read by I: masks, statistics
    Bytes kept_until_weight = 0;      // own state written by F (and R), read by W
    Bytes gradient_until_weight = 0;  // own state written by I, read by W, without output gradients (B needs none)
    Bytes scratch = 0;                // largest need of any pass
    // The I of an add changes its output gradient into the gradient of its inputs in place. When a batch norm and the
    // only layer that reads it, an add, both join, the two run as one, see PassLayout::joined.
    bool joins = false;
    bool operator==(const LayerBytes&) const = default;
};

// Returns the sizes of a layer without what its backward pass leaves out (frozen_layers.h).
LayerBytes without_unused(const Layer& layer, LayerBytes bytes);

enum class Region {
    None,         // does not exist: a gradient that no layer needs, the output of the loss
    Data,         // the data batch of the stage's data-reading layers: from F to W
    UntilInput,   // from F, or from R if the stage has R, to I or B
    UntilWeight,  // from F, or from R if the stage has R, to W or B
    // Of layers that R does not run, from F on:
    FirstUntilAgain,   // to R
    FirstUntilInput,   // to I or B
    FirstUntilWeight,  // to W or B
    // Of offloaded layers, where there is a copy of them on the device: from F to I or B, and to W or B.
    OffloadedUntilInput,
    OffloadedUntilWeight,
    GradientKept,    // output gradients kept from I to W (empty in B)
    SliceGradients,  // from the last slice's I or B to the own slice's
    Workspace,       // dies with the task
    Inbox,           // a landing buffer on this stage's device: Slot.edge says which boundary
    Outbox,          // the other end's landing buffer, written in place
};

struct Slot {
    Region region = Region::None;
    Bytes offset = 0;
    int edge = -1;  // Inbox, Outbox: index into `boundaries_of`
    bool operator==(const Slot&) const = default;
};

// A sum does to += from, elementwise, on `bytes` bytes.
struct Sum {
    Slot from, to;
    Bytes bytes;
};

// A backward pass of a stage. Vectors are indexed by layer number of the whole graph. Entries of layers outside the
// stage are unused. The pass walks the stage's layers in reverse order: for each layer it does the sums of `before`,
// runs the layer, does the sums of `after`.
struct PassLayout {
    std::vector<Slot> output_gradient;              // gradient of the tensor that the layer made, summed
    std::vector<std::vector<Slot>> input_gradient;  // [layer][position]: where the layer writes
    std::vector<std::vector<Sum>> before, after;    // by layer: the sums of fan-outs
    // joined[add] is the batch norm below the add whose I includes the add's I and the last sum of the add's `before`,
    // or -1.
    std::vector<int> joined;
    Bytes workspace = 0;  // bytes, scratch included
    Bytes scratch = 0;    // offset of the scratch in the workspace
};

struct StageLayout {
    int stage = 0;
    std::vector<int> layers;                           // ascending
    std::vector<Slot> output;                          // tensors made here
    std::vector<std::vector<Slot>> input;              // [layer][position]: where F, I and W read the tensor
    std::vector<std::vector<Slot>> copies;             // [layer]: further homes of the tensor, filled by F
    std::vector<std::vector<int>> norms;               // [add][position]: the batch norm that runs with the add, or -1
    std::vector<Slot> saved;                           // LayerBytes::saved_until_input
    std::vector<Slot> kept;                            // LayerBytes::kept_until_weight
    std::vector<Slot> slice_gradient;                  // of attention: gradients of keys, then values (with slices)
    std::vector<Bytes> weight_offset;                  // in the block of weights, where frozen weights come last
    std::vector<Bytes> statistics_offset;              // in the stage's block of running averages
    Bytes forward_workspace = 0, forward_scratch = 0;  // size, and offset of the scratch in it
    // R remakes the tensors that F wrote to an Outbox, each in turn, where F's workspace ends.
    Bytes recompute_workspace = 0;
    PassLayout backward;         // B: I and W together
    PassLayout backward_input;   // I (W reads the same output gradients)
    Bytes weight_workspace = 0;  // W: scratch only
    // Region sizes.
    Bytes weights = 0, frozen = 0, statistics = 0;
    Bytes data = 0, until_input = 0, until_weight = 0, gradient_kept = 0, slice_gradients = 0;
    Bytes first_until_again = 0, first_until_input = 0, first_until_weight = 0;
    Bytes offloaded_until_input = 0, offloaded_until_weight = 0;
};

// The bytes of a boundary's landing buffers at a micro-batch size, and how long the buffers are read.
// Without layers that need the gradient, `backward` is 0.
struct EdgeBytes {
    int from, to;
    Bytes forward = 0, backward = 0;
    bool forward_until_weight = false;   // the receiver's W reads the tensors, else
    bool forward_until_input = false;    // its I does, else the tensors die with F
    bool backward_until_weight = false;  // the gradient is an output gradient that W reads
};

std::vector<EdgeBytes> edge_bytes(const LayerGraph& graph, const StageSplit& split,
                                  const std::vector<LayerBytes>& bytes);

// Lays out a stage. `data_bytes` is the size of a micro-batch of input data in the backend's layout.
StageLayout layout_stage(const LayerGraph& graph, const StageSplit& split, int stage,
                         const std::vector<LayerBytes>& bytes, Bytes data_bytes);

StageBytes stage_bytes(const StageLayout& layout);
// Returns the bytes of all stages, as layout_stage() has them.
std::vector<StageBytes> bytes_of_stages(const LayerGraph& graph, const StageSplit& split,
                                        const std::vector<LayerBytes>& bytes, Bytes data_bytes);

}  // namespace pw

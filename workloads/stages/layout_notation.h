// Stages in the notation of Megatron-LM's --pipeline-model-parallel-layout: E the embedding, t a transformer layer, m
// a module that predicts a further token, L the losses, with the last norm and the output layer. '|' separates stages.
#pragma once

#include "workloads/stages/stage_split.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns whether a text is meant as a layout: it has no other characters, and a transformer layer.
bool is_layout(std::string_view text);
// Returns the letters of every stage of a layout, such as "Et*2|(tt|)*3L". A number repeats a letter or what is in
// parentheses. Throws Error (BadInput) if an end of the model is elsewhere, and for another kind of layer.
std::vector<std::string> stages_of_layout(std::string_view layout);

// Returns the letters of stages with these numbers of blocks, and `mtp` modules of further tokens on the last stage.
std::vector<std::string> letters_of_blocks(const std::vector<int>& blocks, int mtp);

// Makes the split of a layout's stages. Each stage has the layers between its first and its last block. `is_decoder` as
// below. Throws Error (BadInput) where the model has another number of blocks, or none.
StageSplit split_by_layout(const LayerGraph& graph, const std::vector<std::string>& stages, bool is_decoder);

// Returns the layout of stages that are ranges of the forward order. The `part` of a layer gives its letter, else its
// name does. The remaining layers of each block are one t, in a decoder only if the block has a number. If no layer of
// the graph is L, the last stage has an L. Returns an empty text where a block is cut, or where a stage has only layers
// without a letter.
std::string layout_of(const LayerGraph& graph, const StageSplit& split, bool is_decoder);

}  // namespace pw

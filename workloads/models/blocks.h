// The blocks of a model: layers whose names begin alike, such as h.3.ln_1 and h.3.attn.c_attn.
#pragma once

#include "workloads/models/layer_graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

std::vector<std::string> components_of(const std::string& name);  // between the dots
bool is_number(std::string_view text);                            // digits only

// Returns the name of the block that a layer is of: its name up to the first number, "h.3" of "h.3.attn.c_attn", else
// up to the first component that ends with a digit, "down1" of "down1.conv1". Any other layer is a block of its own.
std::string block_of(const std::string& name);

// Returns the layers before which a cut is between blocks, ascending from 0. A block is a range of the forward order.
// Blocks whose layers alternate count as a single block. A loss or a function outside of blocks belongs to the layer
// above it.
std::vector<int> starts_of_blocks(const LayerGraph& graph);

}  // namespace pw

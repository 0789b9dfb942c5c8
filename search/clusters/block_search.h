// Unequal numbers of blocks on the stages of the choices of a search.
#pragma once

#include "search/clusters/search_state.h"

namespace pw {

// Gives stages unequal numbers of blocks, for the choices that this may make the fastest, and lowers the bound to what
// holds for any numbers.
void move_blocks(ClusterSearchState& state);

}  // namespace pw

// Values of degrees in a file: in `parallel` one, or one for each device of the pipeline; in `search` those to try.
#pragma once

#include "job/config/blocks.h"
#include "workloads/transformers/degrees.h"

namespace pw {

// Reads a number, or a name; returns the least value of the degree if it is missing or mistaken.
int read_degree(const Yaml& at, const DegreeFacts& facts);
// Returns the schema of a value as JSON.
std::string schema_of_degree(const DegreeFacts& facts);

}  // namespace pw

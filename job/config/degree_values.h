// Values of degrees in a file: in `parallel` a value, or a value for each device of the pipeline, in `search` the
// values to try.
#pragma once

#include "job/config/blocks.h"
#include "workloads/transformers/degrees.h"

namespace pw {

// Reads a number, or a name. Returns the least value of the degree if the value is missing or mistaken.
int read_degree(const Yaml& at, const DegreeFacts& facts);
// Returns the schema of a value as JSON.
std::string schema_of_degree(const DegreeFacts& facts);

}  // namespace pw

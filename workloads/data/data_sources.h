// The data sets that a config can name: a row of facts for each.
#pragma once

#include "workloads/data/dataset.h"
#include "workloads/models/models.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pw {

struct DataSource {
    std::string_view name;
    std::optional<Labels> labels;  // absent for a set that is generated for the model
    Dims image;                    // as stored, for models that take images of any size (none for sequences)
    int classes;                   // number of classes, or of tokens, 0: the model's number
    // Opens the data set from files, null if the data set has no files. Throws Error (BadInput).
    Dataset (*open)(const std::string& path, const Model& model, std::int64_t seed);
};

// Returns all rows, in the order in which they are listed. The first is the default.
std::span<const DataSource> data_sources();
// Returns the row of a name. Throws Error (BadInput) where none has this name.
const DataSource& data_source(std::string_view name);

// Makes a substitute for any data set: samples that can be learned, with the model's input and classes.
Dataset made_up(Labels labels, const Model& model, std::int64_t seed);

int default_image_size(const BuiltInModel& model, const DataSource& source);

}  // namespace pw

// Where the costs of a config come from, with a row for each cost source: everything that differs between them is in
// the row.
#pragma once

#include "job/config/config.h"
#include "workloads/costs/profiled_model.h"

#include <string_view>

namespace pw {

enum class CostSource {
    Uniform,   // times in the config, per stage
    Shapes,    // of transformers: from the shapes of their products and the messages of their groups
    File,      // times of a model file, per layer
    Measured,  // a profile
    Analytic,  // times computed from FLOPs and bytes
};

struct CostSourceRow {
    CostSource source;
    std::string_view name;  // in reports
    bool has_layers;        // without layers, costs are by stage, and there is no model, profile or split
    bool has_kernels;       // the layers can be computed: measured and run
    bool (*applies)(const Config& config);
    // Makes the profile. Throws Error (BadInput) at the key whose value cannot be used. Null for a source without
    // layers.
    Profile (*profile)(const Config& config, const Model& model);
};

const CostSourceRow& row_of(CostSource source);
// Returns the first row that applies to the config. A job may have its profile from elsewhere (Job::source).
const CostSourceRow& cost_source_of(const Config& config);

// Reads the layers and their times from the file that workload.model names. If neither the file nor
// search.profile_batch gives the number of samples, the times are those of one micro-batch of any size. Throws Error
// (BadInput) at the key whose value cannot be used, or with the mistakes of the file.
ProfiledModel model_from_file(const Config& config);

}  // namespace pw

// Where the costs of a config come from. What differs by cost source stands in one row for each: who asks, asks the
// row.
#pragma once

#include "job/config/config.h"
#include "workloads/costs/profiled_model.h"

#include <string_view>

namespace pw {

enum class CostSource {
    Uniform,   // the config's own times, per stage
    File,      // the times of a model from a file, per layer
    Measured,  // a profile
    Analytic,  // times computed from FLOPs and bytes
};

struct CostSourceRow {
    CostSource source;
    std::string_view name;  // in reports
    bool has_layers;        // without layers the costs are those of stages, and there is no model, profile nor split
    bool has_kernels;       // the layers can be computed: measured and run
    bool (*is_asked_for)(const Config& config);
    // Makes the profile. Throws Error (BadInput) at the key that asks for what cannot be. It is null for a source
    // without layers.
    Profile (*profile)(const Config& config, const Model& model);
};

const CostSourceRow& row_of(CostSource source);
// Returns the first row that the config asks for. A job may have got its profile elsewhere (Job::source).
const CostSourceRow& cost_source_of(const Config& config);

// Reads the layers and their times from the file that workload.model names. Where neither the file nor
// search.profile_batch says how many samples they are for, they are those of one micro-batch, whatever its size. Throws
// Error (BadInput) at the key that asks for what cannot be, or with the mistakes of the file.
ProfiledModel model_from_file(const Config& config);

}  // namespace pw

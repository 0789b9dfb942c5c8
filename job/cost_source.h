// Where the costs of a setup come from, with a row for each cost source: everything that differs between them is in
// the row.
#pragma once

#include "job/setup/setup.h"
#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"
#include "workloads/costs/profiled_model.h"

#include <string_view>

namespace pw {

enum class CostSource {
    Uniform,   // times in the setup, per stage
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
    bool has_groups;        // a device of the plan stands for a group of devices that share its stages
    bool may_be_empty;      // inner stages may have no layers
    bool (*applies)(const Setup& setup);
    // These throw Error (BadInput) at the key whose value cannot be used.
    // Makes the profile. Null for a source without layers.
    Profile (*profile)(const Setup& setup, const Model& model);
    // Makes the model. Null: the built-in model is used.
    Model (*model)(const Setup& setup) = nullptr;
    // Splits the model if the file has no split. Null: pipeline.split does.
    StageSplit (*usual_split)(const Setup& setup, const Model& model) = nullptr;
    // Returns the cluster in which devices of the plan send their messages. Null: a device of the plan is a device of
    // the setup.
    ClusterFacts (*cluster)(const Setup& setup) = nullptr;
    // Adds to the costs of a plan what the devices of a group do together.
    void (*add_groups)(Costs& costs, const Setup& setup, const StageSplit& split, const Shape& shape) = nullptr;
};

const CostSourceRow& row_of(CostSource source);
// Returns the first row that applies to the setup. A job may have its profile from elsewhere (Job::source).
const CostSourceRow& cost_source_of(const Setup& setup);

// Reads the layers and their times from the file that workload.model names. If neither the file nor
// search.profile_batch gives the number of samples, the times are for a micro-batch of any size. Throws Error
// (BadInput) at the key whose value cannot be used, or with the mistakes of the file.
ProfiledModel model_from_file(const Setup& setup);

}  // namespace pw

// Costs measured on this machine, and jobs that are made of them.
#pragma once

#include "exec/measuring/products.h"
#include "job/job.h"
#include "report/hooks.h"

#include <string>
#include <vector>

namespace pw {

struct MeasuredProfile {
    Profile profile;
    std::vector<std::string> warnings = {};  // why the times are not comparable; profile.notes are for people, too
};

// Measures what layers, transfers and updates cost on the backend of `setup`, at these sizes of micro-batches, as
// measure_profile() does.
MeasuredProfile measure_costs(const Setup& setup, const Model& model, const std::vector<int>& sizes,
                              const Hooks& hooks = {});

struct MeasuredTable {
    MeasuredProducts products;
    std::vector<std::string> warnings = {};
};

// Measures matrix products by shape on the backend of `setup`, within about `time`, as measure_products() does: the
// products of a transformer at these sizes of micro-batches, or usual products for other models.
MeasuredTable measure_products_by_shape(const Setup& setup, const std::vector<int>& sizes, Ns time,
                                        const Hooks& hooks = {});

// The passes of all layers in sequence, at a measured size.
LayerTimes total_of(const std::vector<LayerProfile>& layers, int samples);
Ns time_of(const LayerTimes& times);  // of forward and backward

// Returns whether a job of the setup that is to be compared with its run needs a profile that is measured first: the
// setup has no profile, and the backend does not sleep the predicted times.
bool needs_profile(const Setup& setup);

struct MeasuredJob {
    Job job;
    Notices notes = {}, warnings = {};
};
// Makes the job of a setup that is to be compared with its run: with the setup's profile, or a profile measured now.
// Ranks call this together, in with_all_ranks() (exec/all_ranks.h). Throws Error (BadInput) as make_job() does, and for
// GPUs on several ranks.
MeasuredJob measured_job(Setup setup, const Hooks& hooks = {});

}  // namespace pw

// What the user of a job should know of the job.
#pragma once

#include "job/job.h"
#include "workloads/error.h"

#include <string>
#include <vector>

namespace pw {

// Returns a summary like "resnet50, stages from conv1 | layer3.0, 1f1b, 8 micro-batches of 4".
std::string summary_of(const Job& job);

// Returns a note for each key that the setup gives and that changes nothing in the job.
Notices notes_on_idle_keys(const Job& job);
// Returns what the costs are not known from: of analytic costs, of sizes of micro-batches that were not measured, of a
// profile of another backend. `sizes` are the sizes that were used, by default the job's own.
Notices notes_on_costs(const Job& job, std::vector<int> sizes = {});
// Returns how much memory of the hosts offloaded tensors need. Empty if nothing is offloaded.
std::string note_on_host_memory(const Job& job);
// Returns the note that a transformer is predicted in the default precision, which is seldom meant. Empty if the setup
// names a precision, or has no rates in other precisions.
std::string note_on_precision(const Setup& setup);
// Returns by how much this machine is slower or faster than when it measured the job's profile. Empty if another
// machine measured the profile, or the difference is no more than the scatter. Takes a tenth of a second.
std::string note_on_speed(const Job& job);
// Returns the note that a synthetic data set replaces the data set that the setup names. Empty where it does not.
std::string note_on_data(const Setup& setup);

// Throws Error (BadInput) for a workload without layers: `what` needs them, "run" or "measure".
void require_layers(const Setup& setup, const std::string& what);

// Returns the first line of what an error says: the fact, without its place and the way out.
std::string first_line(const Error& error);

}  // namespace pw

// Makes jobs for the commands, and tells users about them.
#pragma once

#include "job/job.h"

#include <string>
#include <vector>

namespace pw {

// Both make a job; what the user should know about the plan goes to stderr.
Job job_of(Config config);
Job job_of(Config config, Profile measured);

// Returns a summary like "resnet50, stages from conv1 | layer3.0, 1f1b, 8 micro-batches of 4".
std::string summary_of(const Job& job);
// Prints a note for each key that changes nothing in the job. After the checks: an error comes first.
void print_idle_keys(const Job& job);
// Returns what the user should know about the costs, at the sizes of micro-batches that were used, by default the job's
// own; it is empty when they are measured at these.
std::string note_on_costs(const Job& job, std::vector<int> used = {});
// Returns by how much this machine is slower or faster than it was when it measured the job's profile; empty when it is
// another machine, nobody knows, or no more than scatters anyway. Takes a tenth of a second.
std::string note_on_speed(const Job& job);

// Throws Error (BadInput) for a workload without layers.
void require_layers(const Config& config, const std::string& command);

}  // namespace pw

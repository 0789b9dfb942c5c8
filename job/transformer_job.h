// The training of a transformer that a setup describes.
#pragma once

#include "job/setup/setup.h"
#include "workloads/transformers/parallel.h"

#include <vector>

namespace pw {

// Makes the job of a complete config whose workload is a transformer. If devices have several makes, the first make
// counts.
TransformerJob transformer_job_of(const Setup& setup);
// Makes the jobs by DeviceConfig::make: a job for each make that a device of the plan stands for.
std::vector<std::vector<TransformerJob>> transformer_jobs_of(const Setup& setup);

// FLOPs of the model for one sample: of the forward, and of the backward if it trains
// (workloads/transformers/transformer_model.h).
double model_flops_per_sample(const Setup& setup, bool trains = true);
// FLOP/s of a device in the precision of the training, as its vendor states them. With several makes, the mean.
double peak_flops(const Setup& setup);

// Returns whether blocks differ in what is trained of them, or some are of an encoder.
bool has_unlike_blocks(const Setup& setup);

// Returns the number of layers that are divided among stages as evenly as possible: the blocks, or with them the
// embedding and the head if only then all stages have equally many.
int slots_of_stages(int blocks, int stages);
// Returns how many blocks each stage has if these slots are divided so. If the slots do not divide, the first stages
// have one more. There are at least as many slots as stages.
std::vector<int> even_blocks(int blocks, int stages);

}  // namespace pw

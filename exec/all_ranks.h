// What all ranks of a launcher do together during runs and between them.
#pragma once

#include "job/config/config.h"
#include "workloads/costs/costs.h"

#include <functional>

namespace pw {

// All ranks call it, each with its part; with another transport than mpi, or on one rank, it only calls `act`. What one
// throws ends all of them: the others throw StoppedByOthers. A rank that is gone, or silent for longer than
// `run.timeout`, is named; one whose main thread works or waits is not silent. It returns on rank 0 when its own part
// is done, on the others when that of rank 0 is, too.
void with_all_ranks(const Config& config, const std::function<void()>& act);

// The functions below are called by all ranks together, inside of with_all_ranks().

// The others wait idly until rank 0 has called it, whatever it does before.
void wait_for_first_rank(const Config& config);
// Returns on every rank the profile that rank 0 measures; messages between ranks have two ends, so the others help.
Profile profile_of_first_rank(const Config& config, const std::function<Profile()>& measure);
// Gives devices the hosts of their ranks, where these are several and the config names neither hosts nor a link. Throws
// Error (BadInput) when there are more ranks than devices.
void take_hosts_of_ranks(Config& config);

}  // namespace pw

// Functions that all ranks of a launcher call together, during runs and between them.
#pragma once

#include "job/config/config.h"
#include "workloads/costs/costs.h"

#include <functional>

namespace pw {

// Calls `act` on all ranks, each with its own part. With a transport other than mpi, or on one rank, it only calls
// `act`. An exception on one rank ends all of them: the others throw StoppedByOthers. The error names a rank that
// is gone, or silent for longer than `run.timeout`; a rank whose main thread works or waits is not silent. It
// returns on rank 0 when its own part is done, and on the others when that of rank 0 is done, too.
void with_all_ranks(const Config& config, const std::function<void()>& act);

// All ranks call the functions below together, inside with_all_ranks().

// Returns on the other ranks when rank 0 has called it; until then they wait without using their cores.
void wait_for_first_rank(const Config& config);
// Returns on every rank the profile that rank 0 measures. The other ranks take part in measuring the messages.
Profile profile_of_first_rank(const Config& config, const std::function<Profile()>& measure);
// Sets the hosts of devices to those of their ranks, if there are several and the config names neither hosts nor a
// link. Throws Error (BadInput) if there are more ranks than devices.
void take_hosts_of_ranks(Config& config);

}  // namespace pw

// Functions that all ranks of a launcher call together, during runs and between them.
#pragma once

#include "job/setup/setup.h"
#include "workloads/costs/costs.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace pw {

// Calls `act` on all ranks, each with its own part. With a transport other than mpi, or on a single rank, it only
// calls `act`. An exception on a rank ends all ranks: the remaining ranks throw StoppedByOthers. The error names a
// rank that is gone, or silent for longer than `run.timeout`. A rank whose main thread works or waits is not silent.
// with_all_ranks() returns on rank 0 when the part of rank 0 is done. It returns on each other rank when both this
// rank's part and the part of rank 0 are done.
void with_all_ranks(const Setup& setup, const std::function<void()>& act);

// The ranks of a launcher, for a command that only computes.
struct ComputingRanks {
    int rank = 0, size = 1;
    int on_host = 1;  // the number of ranks on this rank's host
    int cores = 1;    // that this rank may use (ranks of a host divide the cores that they share)
    // All ranks call it together. Returns the bytes of each rank, by rank.
    std::function<std::vector<std::vector<std::byte>>(const std::vector<std::byte>& own)> exchange = {};
    // Returns whether a rank has failed: then exchange() throws, and what this rank computes is in vain.
    std::function<bool()> has_failed = {};
};
// Does as with_all_ranks() does, whatever transport a setup names, with this `timeout`.
void with_computing_ranks(Ns timeout, const std::function<void(const ComputingRanks& ranks)>& act);

// All ranks call the functions below together, inside with_all_ranks().

// Returns on every rank when rank 0 has called it. Until then ranks wait without using their cores.
void wait_for_first_rank(const Setup& setup);
// Returns on every rank the profile that rank 0 measures. All ranks take part in measuring the messages.
Profile profile_of_first_rank(const Setup& setup, const std::function<Profile()>& measure);
// Gives each device the host of its rank, if the ranks have several hosts and the setup names neither hosts nor a link.
// Throws Error (BadInput) if there are more ranks than devices.
void take_hosts_of_ranks(Setup& setup);

}  // namespace pw

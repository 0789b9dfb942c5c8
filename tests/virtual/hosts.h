// The hosts of the ranks of a virtual world: the functions of machine, ranks and memory that the engine is linked with.
#pragma once

#include "tests/virtual/network.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

inline constexpr Ns kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

struct Ending {
    ExitCode code = ExitCode::Ok;
    std::string text, hash;
    std::optional<int> stopped_after;
    Ns at = -1;  // the time; -1: it has not ended by itself
};

// The ranks of the current world, which the functions that the engine is linked with use.
struct Hosts {
    Network* network = nullptr;
    std::vector<Ending> endings;  // by rank
    int cores = 8;
    std::vector<int> connected = {};  // the ranks that have called rank 0
};
extern Hosts* hosts;  // null outside of worlds

// Notes how a rank ends, and ends its process.
void end_rank(int rank, Ending ending);

}  // namespace pw

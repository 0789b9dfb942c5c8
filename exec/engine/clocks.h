// The clocks of the ranks of a run, and the correction of their times to the clock of rank 0.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/units.h"

#include <vector>

namespace pw {

// The time between the sending of a message on one rank and its arrival on another, each by the rank's own clock.
struct Transit {
    int from = 0, to = 0;  // ranks
    Ns took = 0;           // below 0: their clocks disagree
};

// Returns by how much each clock has to be set back so that no message arrives before it was sent. The corrections
// are as small as possible, and zero for a clock that is `fixed`. If no corrections achieve this, all are zero.
std::vector<Ns> corrections(const std::vector<bool>& fixed, const std::vector<Transit>& transits);

// The offsets of the ranks' clocks from the clock of rank 0. They are measured every few seconds. In between, the
// messages of each step correct the offsets, since every message was sent before it arrived.
class Clocks {
public:
    void take(std::vector<ClockOffset> offsets);  // by rank (empty on ranks other than 0)
    bool are_old() const;
    // Returns the corrections. Ranks whose offset is exact keep their offsets.
    std::vector<Ns> correct(const std::vector<Transit>& transits);
    Ns ahead(int rank) const { return offsets_[static_cast<std::size_t>(rank)].ahead; }
    Ns error() const { return error_; }  // the largest so far, with the drift between two measurements

private:
    std::vector<ClockOffset> offsets_;
    Ns taken_ = 0, error_ = 0;
};

}  // namespace pw

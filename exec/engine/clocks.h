// The clocks of the ranks of a run, and what brings their times onto that of rank 0.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/units.h"

#include <vector>

namespace pw {

// How much later than it was sent a message from one rank to another arrived.
struct Passage {
    int from = 0, to = 0;  // ranks
    Ns took = 0;           // below 0: their clocks disagree
};

// Returns by how much each clock has to be set back so that nothing arrives before it was sent: as little as that
// takes, and nothing for a clock that is `fixed`. Where no setting of the clocks does it, it returns zeros.
std::vector<Ns> corrections(const std::vector<bool>& fixed, const std::vector<Passage>& passages);

// How far the ranks' clocks are ahead of that of rank 0, measured again every few seconds and, between that, corrected
// by what the messages of a step say: every one of them was sent before it arrived.
class Clocks {
public:
    void take(std::vector<ClockOffset> offsets);  // by rank; on the other ranks there is nothing to take
    bool are_old() const;
    // Returns the corrections; ranks whose offset is exact keep theirs.
    std::vector<Ns> correct(const std::vector<Passage>& passages);
    Ns ahead(int rank) const { return offsets_[static_cast<std::size_t>(rank)].ahead; }
    Ns error() const { return error_; }  // the largest seen, with the drift between two measurements

private:
    std::vector<ClockOffset> offsets_;
    Ns taken_ = 0, error_ = 0;
};

}  // namespace pw

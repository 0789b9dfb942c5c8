// What a run needs to know of its ranks: who shares a host, how their messages are numbered, and how the records of
// their steps become one.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/pin.h"
#include "exec/engine/step_log.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"
#include "schedules/plan_graph.h"

#include <string>
#include <vector>

namespace pw {

// Throws Error when the ranks do not all run the same plan (RunFailed), or are more than its devices (BadInput).
void check_ranks(const Job& job, Ranks& ranks);

std::string host_name();

// Returns the cores of the rank's devices. Ranks of one host that may use the same cores share them out.
CorePlan cores_of_rank(const RunPlan& plan);

// Returns a tag by node, equal at both ends of a transfer between ranks; two messages between two ranks in one step
// have different ones. Throws Error (Infeasible) when the transport has too few.
std::vector<int> message_tags(const PlanGraph& graph, const RankMap& map, const MeetingPoints& meetings,
                              const Ranks& ranks);

// The clocks of the ranks beside that of rank 0, measured again every few seconds.
class Clocks {
public:
    void take(std::vector<ClockOffset> offsets);  // by rank; on the other ranks there is nothing to take
    bool are_old() const;
    // Puts times of a rank on the clock of rank 0.
    void translate(int rank, std::vector<TraceEvent>& events, std::vector<MemorySample>& memory) const;
    Ns error() const { return error_; }  // the largest seen, with the drift between two measurements

private:
    std::vector<ClockOffset> offsets_;
    Ns taken_ = 0, error_ = 0;
};

// A message between ranks begins where its SEND did, and arrives no earlier than that.
void join_messages(const PlanGraph& graph, const RankMap& map, StepRecord& step);

// "4 ranks on 2 hosts (a: 0, 1; b: 2, 3), Open MPI v4.1.4; their clocks agree within 2 us"
std::string note_on(const RankReport& report, Ns clock_error);

}  // namespace pw

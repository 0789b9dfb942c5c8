// How large a plan may be, and how long: what is beyond is refused before it is computed or allocated. Each refusal is
// an Error (BadInput) about the setting to blame, with a way out.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/costs.h"

#include <cstdint>
#include <vector>

namespace pw {

struct Buffer;
class TaskKinds;

inline constexpr std::int64_t kMostTasks = 100'000'000;  // of a plan, transfers included
inline constexpr double kMostInputs = 4e9;               // of all its tasks
inline constexpr Ns kLongestPlan = Ns{1} << 60;          // 36 years: sums of times stay far from overflow
inline constexpr Bytes kLargestPlan = Bytes{1} << 61;    // 2 EiB, of all buffers, whether they live together or not

// Returns how many micro-batches an asynchronous plan has in all, with `micro_batches` in each of `steps`. More than a
// plan can have are refused.
int microbatches_of_plan(int micro_batches, int steps);

// Refuses a plan that has more than kMostTasks, or that would take more than memory_for_plans() to make, prove and
// simulate.
void refuse_large(const Shape& shape);
// Does the same for a trace of a plan that is there.
void refuse_large_trace(const PlanGraph& graph, const Shape& shape);
// Does the same for `bytes` of one table of such a plan.
void refuse_large_table(double bytes, const Shape& shape);

// Refuses a plan whose tasks and transfers one after the other, than which no schedule is slower, take longer than
// kLongestPlan. Durations are by kind; `busy` may be empty.
void refuse_long(const PlanGraph& graph, const TaskKinds& kinds, const std::vector<Ns>& durations,
                 const std::vector<Ns>& busy, const Costs& costs);

// Refuses buffers that are all together larger than kLargestPlan.
void refuse_heavy(const std::vector<Buffer>& buffers);

}  // namespace pw

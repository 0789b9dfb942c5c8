// How large a plan may be and how long it may take. Larger plans are refused before anything is computed or allocated.
// Each refusal is an Error (BadInput) about the setting to blame, with a way out.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/costs.h"

#include <cstdint>
#include <vector>

namespace pw {

struct Buffer;
class TaskKinds;

inline constexpr std::int64_t kMostTasks = 100'000'000;  // of a plan, including transfers
inline constexpr double kMostInputs = 4e9;               // of all its tasks
inline constexpr Ns kLongestPlan = Ns{1} << 60;          // 36 years: sums of times stay far from overflow
// 2 EiB: the sum of all buffers, whether they live at the same time or not
inline constexpr Bytes kLargestPlan = Bytes{1} << 61;

// Returns the number of micro-batches of an asynchronous plan with `micro_batches` in each of `steps`. With slices,
// returns the number of slices. Refuses more than a plan can have.
int microbatches_of_plan(int micro_batches, int steps, int slices = 1);

// Refuses a plan with more than kMostTasks, or a plan that takes more than memory_for_plans() to make, prove and
// simulate.
void refuse_large(const Shape& shape);
// Refuses the same for a trace of an existing plan.
void refuse_large_trace(const PlanGraph& graph, const Shape& shape);
// Refuses a plan if the `bytes` of a table are too many.
void refuse_large_table(double bytes, const Shape& shape);

// Refuses a plan whose tasks and transfers, run sequentially, take longer than kLongestPlan. No schedule is slower.
// Durations are by kind. `busy` may be empty.
void refuse_long(const PlanGraph& graph, const TaskKinds& kinds, const std::vector<Ns>& durations,
                 const std::vector<Ns>& busy, const Costs& costs);

// Refuses buffers of `all` bytes if these are more than kLargestPlan.
void refuse_heavy(double all, const Buffer& largest);

}  // namespace pw

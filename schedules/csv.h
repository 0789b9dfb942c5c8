// Plans as PyTorch's schedule CSV: one row per device, cells such as 0F0, 1B2, 0SEND_F3, (0F4;1B0)OVERLAP_F_B.
#pragma once

#include "schedules/plan.h"

#include <string>

namespace pw {

// Whether the format has a cell for such a task: U, S and R have none.
constexpr bool has_csv_cell(Op op) { return op <= Op::BackwardWeight || is_transfer(op); }

// compute_only, or with `transfers` compute_comms. Tasks without a cell are left out. Throws Error
// (BadInput) for what the format cannot say: transfers to a stage that is no neighbour, slices.
std::string print_csv(const Plan& plan, bool transfers);

// Both formats: transfers are taken from the file when it has any and added otherwise; updates are
// added. Blank cells are idle slots; UNSHARD, RESHARD and REDUCE_GRAD move sharded parameters, which
// do not exist here, and are skipped. PyTorch 2.5 wrote B for I and BW for B: recognised by a BW, or
// by B and W of one micro-batch. Throws Error (BadInput) naming file, row and cell; the plan is
// not checked yet (schedules/passes.h).
Plan read_csv(const std::string& path);
Plan parse_csv(const std::string& text, const std::string& name);

}  // namespace pw

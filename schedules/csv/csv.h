// Plans as PyTorch's schedule CSV: a row per device, cells such as 0F0, 1B2, 0SEND_F3, 0WAIT_SEND_F3, 1REDUCE_GRAD,
// (0F4;1B0)OVERLAP_F_B.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {

struct Proof;  // schedules/passes/passes.h

// Returns whether PyTorch's format compute_comms has a cell for the task. U and R have none.
constexpr bool has_csv_cell(Op op) {
    return op == Op::Forward || is_backward(op) || op == Op::SumGradients || is_transfer(op);
}

// Prints the format compute_only, or with `transfers` compute_comms. The latter has transfers, PyTorch's waits for
// them, and a REDUCE_GRAD per stage where its gradients are complete: at its last S, or else U. Tasks without a cell
// are left out. Throws Error (BadInput) for what the format cannot express: transfers to a stage that is no neighbour,
// slices, devices without tasks.
std::string print_csv(const Plan& plan, bool transfers);

struct CellPlace {
    std::string file;
    int row = 0, cell = 0;  // from 1
};

std::string print(const CellPlace& place);  // "plan.csv:2, cell 7"

struct CsvPlan {
    Plan plan;
    std::map<Task, CellPlace> cells;                // of the tasks in the file, without added transfers and updates
    std::map<std::pair<int, int>, CellPlace> sums;  // of REDUCE_GRAD, which every holder has, by device and stage
    std::vector<std::string> notices;               // what was left out, a line each
};

// Both functions read both formats. Transfers are taken from the file if it has any. Otherwise they are added for
// `mode`. Updates are added. Blank cells are idle slots. REDUCE_GRAD is S, or U for a stage on one device. UNSHARD and
// RESHARD are left out with a notice. WAIT cells are left out without a notice: tasks wait here for their inputs only.
// Older forms are recognised: F0_s1 of PyTorch 2.4. B for I and BW for B of 2.5, if the file has a BW, or B and W of
// one micro-batch and no I. Forwards 1 to m of the last rank, as Schedule1F1B exports them. A file without any backward
// is a plan of forwards. Throws Error (BadInput) with file, row and cell. The returned plan is complete, its transfers
// are paired, and each row is in order. check() finds out whether rows wait for each other (schedules/passes/passes.h).
CsvPlan read_csv(const std::string& path, const TransferMode& mode = {});
CsvPlan parse_csv(const std::string& text, const std::string& name, const TransferMode& mode = {});

// Runs check() (schedules/passes/passes.h) with errors that name cells. Added transfers have no cells.
std::shared_ptr<const Proof> prove(const CsvPlan& read, const TransferMode& mode);

}  // namespace pw

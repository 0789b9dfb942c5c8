// The rules that a CSV file must satisfy to be a plan: each error names a cell.
#include "schedules/csv/csv_cells.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

class CellCheck {
public:
    CellCheck(const CsvPlan& read, CsvDialect dialect) : read_(read), dialect_(dialect) {
        for (const auto& [task, place] : read.cells)
            has_backward_ |= is_backward(task.op);
    }

    // The first missing task is found after at most as many steps as there are tasks, however large the numbers of the
    // file are.
    void check_complete() const {
        for (int stage = 0; stage < read_.plan.shape.stages; ++stage)
            for (int mb = 0; mb < read_.plan.shape.microbatches; ++mb) {
                check_forward(stage, mb);
                check_backward(stage, mb);
                check_one_row(stage, mb);
            }
    }

    void check_order(const Plan& plan) const {
        const PlanGraph graph(plan);
        for (int node = 0; node < graph.size(); ++node)
            for (const int input : graph.inputs(node)) {
                if (graph.device_of(input) != graph.device_of(node))
                    continue;
                const bool paired = input + 1 == node && graph.task(input).with_next;
                if (input >= node || paired)
                    fail_late(graph.task(node), graph.task(input), paired);
            }
    }

    // `compute` is the plan without its transfers: the file must have the transfers that the pass adds to it.
    void check_transfers(const Plan& compute) const {
        Plan expected = compute;
        add_transfers(expected);
        std::map<Task, int> row_of;
        for (std::size_t device = 0; device < expected.order.size(); ++device)
            for (const Task& task : expected.order[device])
                if (is_transfer(task.op))
                    row_of[task] = static_cast<int>(device) + 1;
        for (const auto& [task, place] : read_.cells)
            if (is_transfer(task.op))
                check_row_of(task, place, row_of);
        for (const auto& [task, row] : row_of)
            if (!read_.cells.contains(task))
                fail_missing(task, row_of);
    }

private:
    std::string name(const Task& task) const { return csv_cell(task, dialect_); }

    const CellPlace* find(const Task& task) const {
        const auto found = read_.cells.find(task);
        return found == read_.cells.end() ? nullptr : &found->second;
    }

    int row_of_stage(int stage, int mb) const { return find({Op::Forward, stage, mb})->row; }

    void check_forward(int stage, int mb) const {
        if (find({Op::Forward, stage, mb}))
            return;
        // Finds a cell that shows that the F is missing; some cell has the largest micro-batch.
        const auto distance = [&](const Task& task) {
            if (task.microbatch == mb)
                return task.stage == stage ? 0 : 1;
            return task.microbatch > mb ? 2 : 3;
        };
        const auto& [near, place] =
            *std::min_element(read_.cells.begin(), read_.cells.end(),
                              [&](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
        fail_in(place, fmt::format("micro-batch {} has no F on stage {}, but {} is here", mb, stage, name(near)),
                fmt::format("add {}: every micro-batch runs on every stage, and both are counted from 0 without gaps",
                            name({Op::Forward, stage, mb})));
    }

    void check_backward(int stage, int mb) const {
        const Task whole{Op::Backward, stage, mb}, input{Op::BackwardInput, stage, mb},
            weight{Op::BackwardWeight, stage, mb};
        const bool old = dialect_ == CsvDialect::StageLast;  // has no I and W
        const std::string forms =
            old ? name(whole) : fmt::format("{}, or {} and {}", name(whole), name(input), name(weight));
        if (find(whole) && (find(input) || find(weight))) {
            const Task& half = find(input) ? input : weight;
            fail_in(*find(half),
                    fmt::format("{} and {} at {} do the same work", name(half), name(whole), print(*find(whole))),
                    fmt::format("keep {}", forms));
        }
        if (!find(input) != !find(weight)) {
            const Task &there = find(input) ? input : weight, &missing = find(input) ? weight : input;
            fail_in(*find(there), fmt::format("{} has no {}", name(there), name(missing)),
                    fmt::format("add {}; a backward pass is {}", name(missing), forms));
        }
        if (has_backward_ && !find(whole) && !find(input) && !read_.plan.shape.runs_forwards_only(stage))
            fail_in(*find({Op::Forward, stage, mb}),
                    fmt::format("micro-batch {} has no backward pass on stage {}", mb, stage),
                    fmt::format("add {}; a plan of forwards only has no backward pass at all", forms));
    }

    void check_one_row(int stage, int mb) const {
        const CellPlace& forward = *find({Op::Forward, stage, mb});
        for (const Op op : {Op::Backward, Op::BackwardInput, Op::BackwardWeight})
            if (const CellPlace* place = find({op, stage, mb}); place && place->row != forward.row)
                fail_in(*place,
                        fmt::format("{} is in row {}, but {} at {}", name({op, stage, mb}), place->row,
                                    name({Op::Forward, stage, mb}), print(forward)),
                        fmt::format("move it to row {}: what F saves stays on its device", forward.row));
    }

    [[noreturn]] void fail_late(const Task& task, const Task& input, bool paired) const {
        fail_in(read_.cells.at(task),
                fmt::format("{} needs {}, which {}", name(task), name(input),
                            paired ? "runs overlapped with it" : "comes later: " + print(read_.cells.at(input))),
                paired ? "write them as two cells" : fmt::format("move {} before {}", name(input), name(task)));
    }

    void check_row_of(const Task& task, const CellPlace& place, const std::map<Task, int>& row_of) const {
        const auto expected = row_of.find(task);
        if (expected != row_of.end() && expected->second == place.row)
            return;
        const int row = row_of_stage(task.stage, task.microbatch);
        std::string fact = fmt::format("stages {} and {} both run micro-batch {} in row {}: nothing is sent",
                                       task.stage, task.peer, task.microbatch, row);
        if (expected != row_of.end())
            fact = fmt::format("{} is in row {}, but stage {} runs micro-batch {} in row {}", name(task), place.row,
                               task.stage, task.microbatch, row);
        else if (carries_gradients(task.op) && !has_backward_)
            fact = fmt::format("{} carries a gradient, but no row runs a backward pass", name(task));
        fail_in(
            place, fact,
            expected != row_of.end() ? fmt::format("move it to row {}", row) : fmt::format("remove {}", name(task)));
    }

    Task reader_of(const Task& recv) const {
        for (const OpFacts& reader : kOpFacts)
            if (const Task task{reader.op, recv.stage, recv.microbatch}; reads(reader.op, recv.op) && find(task))
                return task;
        return recv;  // never reached: the reader of `recv` led here
    }

    [[noreturn]] void fail_missing(const Task& missing, const std::map<Task, int>& row_of) const {
        const Task other = other_end(missing);
        if (const CellPlace* place = find(other))
            fail_in(*place, fmt::format("{} has no {} in row {}", name(other), name(missing), row_of.at(missing)),
                    fmt::format("add {} in row {}, or remove {}", name(missing), row_of.at(missing), name(other)));
        const Task &send = is_send(missing.op) ? missing : other, &recv = is_send(missing.op) ? other : missing;
        const Task reader = reader_of(recv);
        fail_in(read_.cells.at(reader),
                fmt::format("{} has no {}, and its input is made in row {}", name(reader), name(recv), row_of.at(send)),
                fmt::format("add {} in row {} and {} in row {}; or remove every SEND and RECV: they are then added",
                            name(send), row_of.at(send), name(recv), row_of.at(recv)));
    }

    const CsvPlan& read_;
    CsvDialect dialect_;
    bool has_backward_ = false;
};

}  // namespace

void check_cells(const CsvPlan& read, CsvDialect dialect) { CellCheck(read, dialect).check_complete(); }

// Checks computation first: with that in order, transfers can be added and compared with those of the file.
void check_rows(const CsvPlan& read, CsvDialect dialect) {
    const CellCheck cells(read, dialect);
    Plan compute = read.plan;
    for (auto& order : compute.order)
        std::erase_if(order, [](const Task& task) { return is_transfer(task.op); });
    cells.check_order(compute);
    if (compute.order == read.plan.order)
        return;
    cells.check_transfers(compute);
    cells.check_order(read.plan);
}

}  // namespace pw

#include "schedules/csv/csv.h"

#include "schedules/csv/csv_cells.h"
#include "schedules/memory/limits.h"
#include "schedules/passes/passes.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

namespace pw {

namespace {

// The format does not name the peer of a transfer. The peer is a neighbouring stage of the chain.
int peer_of(Op op, const CsvCell& cell, int stages) {
    if (!is_transfer(op))
        return -1;
    const bool later = facts_of(op).peers == PeerStages::After;
    const int peer = cell.stage + (later ? 1 : -1);
    if (peer < 0 || peer >= stages)
        fail_in(cell.at,
                fmt::format("stage {} of {} has no stage {} it", cell.stage, stages, later ? "after" : "before"),
                fmt::format("remove {}", cell.text));
    return peer;
}

// Stages and micro-batches are counted from 0 without gaps, so neither number can exceed the number of cells.
void set_counts(Shape& shape, const CsvFile& file) {
    std::size_t cells = 0;
    for (const auto& row : file.rows)
        cells += static_cast<std::size_t>(std::count_if(row.begin(), row.end(), has_task));
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row) {
            if (!has_task(cell))
                continue;
            const auto largest = static_cast<std::size_t>(std::max(cell.stage, cell.microbatch));
            if (largest >= cells)
                fail_in(cell.at, fmt::format("number {} in a plan of {} tasks", largest, cells),
                        "stages and micro-batches are counted from 0 without gaps");
            shape.stages = std::max(shape.stages, cell.stage + 1);
            shape.microbatches = std::max(shape.microbatches, cell.microbatch + 1);
        }
}

// The gradients of a stage so far in a row. A file is a single mini-batch, so one sum ends them.
struct Gradients {
    bool any = false;
    const CsvCell* sum = nullptr;
};

void note_sum(const CsvCell& cell, Gradients& gradients) {
    if (gradients.sum)
        fail_in(cell.at, fmt::format("{} is listed twice, first at {}", cell.text, print(gradients.sum->at)),
                "remove one of them");
    if (!gradients.any)
        fail_in(cell.at, fmt::format("{} has no gradient of stage {} before it in its row", cell.text, cell.stage),
                "put it after the stage's last B or W, or remove it");
    gradients.sum = &cell;
}

void note_gradient(const CsvCell& cell, Gradients& gradients) {
    if (gradients.sum)
        fail_in(gradients.sum->at,
                fmt::format("{} comes before {} at {}", gradients.sum->text, cell.text, print(cell.at)),
                "put it after the stage's last B or W: a file is one mini-batch");
    gradients.any = true;
}

// Returns a row's tasks, and stores their cells in `read.cells` and `read.sums`.
std::vector<Task> tasks_of(const std::vector<CsvCell>& row, int device, CsvDialect dialect, CsvPlan& read) {
    std::vector<Task> order;
    std::map<int, Gradients> gradients_of;  // by stage
    for (const CsvCell& cell : row) {
        if (!has_task(cell))
            continue;
        const Op op = op_of(cell, dialect);
        Task task{op, cell.stage, cell.microbatch, 0, peer_of(op, cell, read.plan.shape.stages), cell.with_next};
        if (op == Op::SumGradients) {
            note_sum(cell, gradients_of[cell.stage]);
            task.microbatch = read.plan.shape.last_of(0);
            read.sums[{device, cell.stage}] = cell.at;
            order.push_back(task);
            continue;
        }
        const auto [first, fresh] = read.cells.try_emplace(task, cell.at);
        if (!fresh)
            fail_in(cell.at, fmt::format("{} is listed twice, first at {}", cell.text, print(first->second)),
                    "remove one of them");
        if (makes_weight_gradient(op))
            note_gradient(cell, gradients_of[cell.stage]);
        order.push_back(task);
    }
    return order;
}

// Places the stages of a plan that has every F(stage, micro-batch).
void place_stages(Plan& plan) {
    plan.shape.placement.resize(static_cast<std::size_t>(plan.shape.stages));
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        for (const Task& task : plan.order[device]) {
            std::vector<int>& holders = plan.shape.placement[static_cast<std::size_t>(task.stage)];
            if (task.op == Op::Forward && (holders.empty() || holders.back() != static_cast<int>(device)))
                holders.push_back(static_cast<int>(device));
        }
    serve_as_listed(plan);
}

// A stage on one device needs no sum: its REDUCE_GRAD is where the stage is updated.
void update_where_held_once(Plan& plan) {
    for (std::vector<Task>& order : plan.order)
        for (Task& task : order)
            if (task.op == Op::SumGradients && std::ssize(plan.shape.devices_of(task.stage)) == 1)
                task.op = Op::Update;
}

bool has_transfers(const Plan& plan) {
    for (const auto& order : plan.order)
        for (const Task& task : order)
            if (is_transfer(task.op))
                return true;
    return false;
}

// UNSHARD and RESHARD have no effect here, but their row must have a task of their stage.
std::vector<std::string> notices_of(const CsvFile& file, const std::string& name) {
    int unshards = 0, reshards = 0;
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row) {
            if (!is_sharding(cell))
                continue;
            ++(cell.type == "UNSHARD" ? unshards : reshards);
            const auto runs = [&](const CsvCell& other) { return has_task(other) && other.stage == cell.stage; };
            if (std::none_of(row.begin(), row.end(), runs))
                fail_in(cell.at, fmt::format("{}: no task of stage {} is in this row", cell.text, cell.stage),
                        fmt::format("remove {}", cell.text));
        }
    if (unshards + reshards == 0)
        return {};
    return {fmt::format("{}: {} UNSHARD and {} RESHARD left out: parameters are never sharded here", name, unshards,
                        reshards)};
}

// PyTorch's Schedule1F1B writes the forwards of the last rank as 1 to m (its _get_pipeline_order, which is only used to
// export). REDUCE_GRAD and other cells without a micro-batch may be among them. Corrects the forwards, and returns a
// notice of the change, or nothing.
std::string renumber_last_forwards(CsvFile& file, const std::string& name) {
    std::vector<CsvCell>& last = file.rows.back();
    std::vector<CsvCell*> forwards;
    int backwards = 0;
    for (CsvCell& cell : last) {
        const bool expected = cell.microbatch < 0 || (cell.type == "F"   ? cell.microbatch == std::ssize(forwards) + 1
                                                      : cell.type == "B" ? cell.microbatch == backwards
                                                                         : false);
        if (!expected || cell.stage != last.front().stage)
            return {};
        if (cell.type == "F")
            forwards.push_back(&cell);
        else if (cell.microbatch >= 0)
            ++backwards;
    }
    const int count = static_cast<int>(forwards.size());
    for (std::size_t row = 0; row + 1 < file.rows.size(); ++row)
        for (const CsvCell& cell : file.rows[row])
            if (cell.microbatch >= count)
                return {};
    if (count == 0 || backwards != count || file.rows.size() < 2)
        return {};
    for (CsvCell* cell : forwards)
        --cell->microbatch;
    return fmt::format(
        "{}: row {} has the forwards 1 to {} of stage {}, as PyTorch's Schedule1F1B writes them for the "
        "last rank; they are read as 0 to {}",
        name, file.rows.size(), count, last.front().stage, count - 1);
}

void refuse_what_has_no_cell(const Task& task) {
    if (is_transfer(task.op) && std::abs(task.peer - task.stage) != 1)
        fail(
            "{}: PyTorch's format has no transfers between stages that are not neighbours\n  help: use "
            "--format csv, which leaves transfers out, or --format text",
            print(task));
    if (task.is_sliced())
        fail("{}: PyTorch's format has no slices\n  help: use --format text", print(task));
}

// Prints a row's cells. An overlapped pair contains only its two tasks: receives precede the pair, and everything else
// follows it.
class RowPrinter {
public:
    RowPrinter(const std::vector<Task>& order, bool transfers) : order_(order), transfers_(transfers) {
        for (int position = 0; position < static_cast<int>(order.size()); ++position)
            note_reduction(position);
    }

    std::string print() {
        for (int position = 0; position < static_cast<int>(order_.size()); ++position)
            add(position);
        end_step();  // a row may end inside a pair
        for (const Task& send : unwaited_)
            cells_.push_back(wait_for(send));
        return fmt::format("{}\n", fmt::join(cells_, ","));
    }

private:
    // A stage's gradients are complete at its last S, or else at its last U. Without REDUCE_GRAD PyTorch would not
    // average them.
    void note_reduction(int position) {
        const Task& task = order_[position];
        if (!is_closing(task.op))
            return;
        const auto [at, fresh] = reductions_.try_emplace(task.stage, position);
        if (task.op == Op::SumGradients || order_[at->second].op == Op::Update)
            at->second = position;
    }

    void add(int position) {
        const Task& task = order_[position];
        if (is_compute(task.op) && has_csv_cell(task.op))
            compute(task);
        else if (transfers_ && is_transfer(task.op))
            transfer(task);
        else if (const auto found = reductions_.find(task.stage);
                 transfers_ && found != reductions_.end() && found->second == position)
            for (const char* type : {"REDUCE_GRAD", "WAIT_REDUCE_GRAD"})
                cells_after_step().push_back(fmt::format("{}{}", task.stage, type));
    }

    void compute(const Task& task) {
        refuse_what_has_no_cell(task);
        step_.push_back(task);
        if (!task.with_next)
            end_step();
    }

    void transfer(const Task& task) {
        refuse_what_has_no_cell(task);
        (is_recv(task.op) ? cells_ : cells_after_step()).push_back(csv_cell(task, CsvDialect::Current));
        if (is_send(task.op))
            unwaited_.push_back(task);
    }

    std::vector<std::string>& cells_after_step() { return step_.empty() ? cells_ : after_; }

    void end_step() {
        std::vector<std::string> names;
        for (const Task& task : step_)
            names.push_back(csv_cell(task, CsvDialect::Current));
        if (names.size() > 1)
            names = {fmt::format("({})OVERLAP_F_B", fmt::join(names, ";"))};
        cells_.insert(cells_.end(), names.begin(), names.end());
        for (const Task& task : std::exchange(step_, {}))
            if (makes_input_gradient(task.op))
                wait_for_output_of(task);
        cells_.insert(cells_.end(), after_.begin(), after_.end());
        after_.clear();
    }

    static std::string wait_for(const Task& send) {
        return fmt::format("{}WAIT_{}{}", send.stage, letters_of(send.op), send.microbatch);
    }

    // The backward of a micro-batch shows that the output of its forward has arrived. PyTorch waits there for that
    // send, and for all remaining sends at the end.
    void wait_for_output_of(const Task& backward) {
        const auto sent = std::find_if(unwaited_.begin(), unwaited_.end(), [&](const Task& send) {
            return send.op == Op::SendForward && send.stage == backward.stage && send.microbatch == backward.microbatch;
        });
        if (sent == unwaited_.end())
            return;
        cells_.push_back(wait_for(*sent));
        unwaited_.erase(sent);
    }

    const std::vector<Task>& order_;
    bool transfers_;
    std::map<int, int> reductions_;  // stage -> position of the S or U for which REDUCE_GRAD is written
    std::vector<std::string> cells_, after_;
    std::vector<Task> step_, unwaited_;  // a task or a pair; sends
};

void refuse_idle_devices(const Plan& plan) {
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        if (std::none_of(plan.order[device].begin(), plan.order[device].end(),
                         [](const Task& task) { return is_compute(task.op); }))
            fail_about({Setting::MicroBatches, Setting::StageReplicas},
                       "device {} runs no micro-batch: PyTorch's format has no rows without tasks\n  help: give every "
                       "device a micro-batch, by more micro-batches or fewer replicas; or use --format text",
                       device);
}

}  // namespace

std::string print(const CellPlace& place) { return fmt::format("{}:{}, cell {}", place.file, place.row, place.cell); }

CsvPlan parse_csv(const std::string& text, const std::string& name, const TransferMode& mode) {
    CsvFile file = parse_cells(text, name);
    const std::string renumbered = renumber_last_forwards(file, name);
    CsvPlan read;
    Plan& plan = read.plan;
    plan.schedule = std::filesystem::path(name).filename().string();
    plan.shape.devices = static_cast<int>(file.rows.size());
    set_counts(plan.shape, file);
    for (int device = 0; device < plan.shape.devices; ++device)
        plan.order.push_back(tasks_of(file.rows[device], device, file.dialect, read));
    run_forwards_as_listed(plan);
    check_waits(file);
    read.notices = notices_of(file, name);
    if (!plan.shape.forwards_only.empty())
        read.notices.push_back(fmt::format("{}: only forwards of stages {}: their layers are taken for frozen", name,
                                           fmt::join(plan.shape.forwards_only, ", ")));
    if (!renumbered.empty())
        read.notices.push_back(renumbered);
    check_cells(read, file.dialect);
    place_stages(plan);
    update_where_held_once(plan);
    try {
        refuse_large(plan.shape);
    } catch (const Error& error) {
        fail("{}\n --> {}\n  help: {}", error.fact(), name, error.help());
    }
    check_rows(read, file.dialect);
    const bool complete = has_transfers(plan);
    add_updates(plan);
    if (!complete)
        add_transfers(plan, mode);
    return read;
}

CsvPlan read_csv(const std::string& path, const TransferMode& mode) {
    return parse_csv(read_text(path, "write one with: pipewright plan CONFIG --format csv -o PLAN.csv"), path, mode);
}

std::shared_ptr<const Proof> prove(const CsvPlan& read, const TransferMode& mode) {
    return check(read.plan, mode, [&](int device, int position) {
        const Task& task = read.plan.order[device][position];
        if (const auto sum = read.sums.find({device, task.stage}); is_closing(task.op) && sum != read.sums.end())
            return print(sum->second);
        if (const auto found = read.cells.find(task); found != read.cells.end())
            return print(found->second);
        return is_transfer(task.op) ? std::string() : fmt::format("device {} step {}", device, position);
    });
}

std::string print_csv(const Plan& plan, bool transfers) {
    refuse_idle_devices(plan);
    std::string text;
    for (const std::vector<Task>& order : plan.order)
        text += RowPrinter(order, transfers).print();
    return text;
}

}  // namespace pw

#include "schedules/csv.h"

#include "schedules/csv_cells.h"
#include "schedules/limits.h"
#include "schedules/passes.h"
#include "workloads/beyond_limit.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace pw {

namespace {

// The format leaves the other end of a transfer to the chain of stages.
int peer_of(Op op, const CsvCell& cell, int stages) {
    if (!is_transfer(op))
        return -1;
    const bool later = op == Op::SendForward || op == Op::RecvBackward;
    const int peer = cell.stage + (later ? 1 : -1);
    if (peer < 0 || peer >= stages)
        fail_in(cell.at,
                fmt::format("stage {} of {} has no stage {} it", cell.stage, stages, later ? "after" : "before"),
                fmt::format("remove {}", cell.text));
    return peer;
}

// Stages and micro-batches count from 0 without gaps, so neither number can exceed the number of cells.
void set_counts(Shape& shape, const CsvFile& file) {
    std::size_t cells = 0;
    for (const auto& row : file.rows)
        cells += static_cast<std::size_t>(std::count_if(row.begin(), row.end(), std::not_fn(is_sharding)));
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row) {
            const auto largest = static_cast<std::size_t>(std::max(cell.stage, cell.microbatch));
            if (largest >= cells)
                fail_in(cell.at, fmt::format("number {} in a plan of {} tasks", largest, cells),
                        "stages and micro-batches count from 0 without gaps");
            shape.stages = std::max(shape.stages, cell.stage + 1);
            shape.microbatches = std::max(shape.microbatches, cell.microbatch + 1);
        }
}

// What a row has said of a stage's gradients so far. A file is one mini-batch: one sum ends it.
struct Gradients {
    bool any = false;
    const CsvCell* sum = nullptr;
};

void note_sum(const CsvCell& cell, Gradients& gradients) {
    if (gradients.sum)
        fail_in(cell.at, fmt::format("{} is there twice, first at {}", cell.text, print(gradients.sum->at)),
                "remove one of them");
    if (!gradients.any)
        fail_in(cell.at, fmt::format("{} has no gradient of stage {} before it in its row", cell.text, cell.stage),
                "put it behind the stage's last B or W, or remove it");
    gradients.sum = &cell;
}

void note_gradient(const CsvCell& cell, Gradients& gradients) {
    if (gradients.sum)
        fail_in(gradients.sum->at,
                fmt::format("{} comes before {} at {}", gradients.sum->text, cell.text, print(cell.at)),
                "put it behind the stage's last B or W: a file is one mini-batch");
    gradients.any = true;
}

// A row's tasks, and in `read.cells` and `read.sums` where they stand.
std::vector<Task> tasks_of(const std::vector<CsvCell>& row, int device, CsvDialect dialect, CsvPlan& read) {
    std::vector<Task> order;
    std::map<int, Gradients> gradients_of;  // by stage
    for (const CsvCell& cell : row) {
        if (is_sharding(cell))
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
            fail_in(cell.at, fmt::format("{} is there twice, first at {}", cell.text, print(first->second)),
                    "remove one of them");
        if (op == Op::Backward || op == Op::BackwardWeight)
            note_gradient(cell, gradients_of[cell.stage]);
        order.push_back(task);
    }
    return order;
}

// For a plan whose every F(stage, micro-batch) is there.
void place_stages(Plan& plan) {
    plan.shape.placement.resize(static_cast<std::size_t>(plan.shape.stages));
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        for (const Task& task : plan.order[device]) {
            std::vector<int>& holders = plan.shape.placement[static_cast<std::size_t>(task.stage)];
            if (task.op == Op::Forward && (holders.empty() || holders.back() != static_cast<int>(device)))
                holders.push_back(static_cast<int>(device));
        }
}

bool has_transfers(const Plan& plan) {
    for (const auto& order : plan.order)
        for (const Task& task : order)
            if (is_transfer(task.op))
                return true;
    return false;
}

// UNSHARD and RESHARD say nothing here, but they must speak of a stage of their row.
std::vector<std::string> notices_of(const CsvFile& file, const std::string& name) {
    int unshards = 0, reshards = 0;
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row) {
            if (!is_sharding(cell))
                continue;
            ++(cell.type == "UNSHARD" ? unshards : reshards);
            const auto runs = [&](const CsvCell& other) { return !is_sharding(other) && other.stage == cell.stage; };
            if (std::none_of(row.begin(), row.end(), runs))
                fail_in(cell.at, fmt::format("{}: no task of stage {} is in this row", cell.text, cell.stage),
                        fmt::format("remove {}", cell.text));
        }
    if (unshards + reshards == 0)
        return {};
    return {fmt::format("{}: {} UNSHARD and {} RESHARD left out: parameters are never sharded here", name, unshards,
                        reshards)};
}

void refuse_what_has_no_cell(const Task& task) {
    if (is_transfer(task.op) && std::abs(task.peer - task.stage) != 1)
        fail(
            "{}: PyTorch's format has no transfers between stages that are not neighbours\n  help: use "
            "--format csv, which leaves transfers out, or --format text",
            print(task));
    if (task.slice != 0)
        fail("{}: PyTorch's format has no slices\n  help: use --format text", print(task));
}

// Nothing stands inside an overlapped pair: what is received goes before it, all else after it.
std::string print_row(const std::vector<Task>& order, bool transfers) {
    std::vector<std::string> cells, pair, after;
    for (const Task& task : order) {
        if (!has_csv_cell(task.op) || (is_transfer(task.op) && !transfers))
            continue;
        refuse_what_has_no_cell(task);
        const std::string cell = csv_cell(task, CsvDialect::Current);
        if (!pair.empty() && !is_compute(task.op))
            (is_recv(task.op) ? cells : after).push_back(cell);
        else if (task.with_next || !pair.empty())
            pair.push_back(cell);
        else
            cells.push_back(cell);
        if (!pair.empty() && is_compute(task.op) && !task.with_next) {
            cells.push_back(fmt::format("({})OVERLAP_F_B", fmt::join(pair, ";")));
            cells.insert(cells.end(), after.begin(), after.end());
            pair.clear();
            after.clear();
        }
    }
    cells.insert(cells.end(), pair.begin(), pair.end());  // of a row that ends inside a pair
    return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

std::string print(const CellPlace& place) { return fmt::format("{}:{}, cell {}", place.file, place.row, place.cell); }

CsvPlan parse_csv(const std::string& text, const std::string& name, const TransferMode& mode) {
    const CsvFile file = parse_cells(text, name);
    CsvPlan read;
    Plan& plan = read.plan;
    plan.schedule = std::filesystem::path(name).filename().string();
    plan.shape.devices = static_cast<int>(file.rows.size());
    set_counts(plan.shape, file);
    for (int device = 0; device < plan.shape.devices; ++device)
        plan.order.push_back(tasks_of(file.rows[device], device, file.dialect, read));
    read.notices = notices_of(file, name);
    check_cells(read, file.dialect);
    place_stages(plan);
    try {
        refuse_large(plan.shape);
    } catch (const BeyondLimit& limit) {
        fail("{}\n --> {}\n  help: {}", limit.fact, name, limit.help);
    }
    check_rows(read, file.dialect);
    const bool complete = has_transfers(plan);
    add_updates(plan);
    if (!complete)
        add_transfers(plan, mode);
    return read;
}

CsvPlan read_csv(const std::string& path, const TransferMode& mode) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf()))
        fail("cannot read plan '{}'\n  help: write one with: pipewright plan CONFIG --format csv -o PLAN.csv", path);
    return parse_csv(text.str(), path, mode);
}

void prove(const CsvPlan& read, const TransferMode& mode) {
    check(read.plan, mode, [&](int device, int position) {
        const Task& task = read.plan.order[device][position];
        if (const auto sum = read.sums.find({device, task.stage});
            task.op == Op::SumGradients && sum != read.sums.end())
            return print(sum->second);
        const auto found = read.cells.find(task);
        return found == read.cells.end() ? fmt::format("device {} step {}", device, position) : print(found->second);
    });
}

std::string print_csv(const Plan& plan, bool transfers) {
    std::string text;
    for (const std::vector<Task>& order : plan.order)
        text += print_row(order, transfers);
    return text;
}

}  // namespace pw

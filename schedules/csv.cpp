#include "schedules/csv.h"

#include "schedules/passes.h"
#include "workloads/error.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace pw {

namespace {

constexpr std::string_view kForm =
    "write stage, type and micro-batch, as in 0F3; types: F B I W SEND_F RECV_F SEND_B RECV_B";
constexpr std::string_view kNoEffect[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr std::string_view kOverlap = "OVERLAP_F_B";

struct CellPlace {
    std::string file;
    int row, cell;  // from 1
};

[[noreturn]] void fail_in(const CellPlace& at, const std::string& fact, std::string_view help) {
    fail("{}\n --> {}:{}, cell {} (device {})\n  help: {}", fact, at.file, at.row, at.cell, at.row - 1, help);
}

// An action as written, before the dialect is known.
struct Action {
    CellPlace at;
    int stage, microbatch;
    std::string_view type;
    bool with_next;
};

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == text.npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

// Takes the digits at the front; -1 when there are none.
int take_number(std::string_view& text, const CellPlace& at, std::string_view cell) {
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
        fail_in(at, fmt::format("'{}': the number is too large", cell), kForm);
    if (error != std::errc() || text.front() == '-')
        return -1;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

bool is_type(std::string_view type) {
    const std::optional<Op> op = op_from(type);
    return type == "BW" || (op && has_csv_cell(*op));
}

void parse_action(std::string_view cell, const CellPlace& at, bool with_next, std::vector<Action>& actions) {
    std::string_view rest = cell;
    const int stage = take_number(rest, at, cell);
    if (stage < 0)
        fail_in(at, fmt::format("'{}' does not start with a stage", cell), kForm);
    const std::string_view type = rest.substr(0, rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"));
    rest.remove_prefix(type.size());
    const bool no_effect = std::find(std::begin(kNoEffect), std::end(kNoEffect), type) != std::end(kNoEffect);
    if (!no_effect && !is_type(type))
        fail_in(at, fmt::format("'{}': unknown type '{}'", cell, type), kForm);
    const int microbatch = take_number(rest, at, cell);
    if (!rest.empty())
        fail_in(at, fmt::format("'{}': '{}' is left over", cell, rest), kForm);
    if (no_effect && microbatch >= 0)
        fail_in(at, fmt::format("'{}': {} has no micro-batch", cell, type), fmt::format("write {}{}", stage, type));
    if (!no_effect && microbatch < 0)
        fail_in(at, fmt::format("'{}' has no micro-batch", cell), kForm);
    if (!no_effect)
        actions.push_back({at, stage, microbatch, type, with_next});
}

// "(0F4;1B0)OVERLAP_F_B": all but the last run overlapped with the next.
void parse_compound(std::string_view cell, const CellPlace& at, std::vector<Action>& actions) {
    const std::size_t close = cell.find(')');
    if (close == cell.npos || cell.substr(close + 1) != kOverlap)
        fail_in(at, fmt::format("'{}' is no overlapped pair", cell), "write (0F4;1B0)OVERLAP_F_B");
    const std::vector<std::string_view> parts = split(cell.substr(1, close - 1), ';');
    for (std::size_t k = 0; k < parts.size(); ++k)
        parse_action(trim(parts[k]), at, k + 1 < parts.size(), actions);
}

std::vector<Action> parse_row(std::string_view row, const std::string& file, int number) {
    std::vector<Action> actions;
    CellPlace at{file, number, 0};
    for (std::string_view cell : split(row, ',')) {
        ++at.cell;
        cell = trim(cell);
        if (!cell.empty() && cell.front() == '(')
            parse_compound(cell, at, actions);
        else if (!cell.empty())
            parse_action(cell, at, false, actions);
    }
    return actions;
}

bool is_legacy(const std::vector<std::vector<Action>>& rows) {
    std::set<std::pair<int, int>> backward, weight;
    for (const auto& row : rows)
        for (const Action& action : row) {
            if (action.type == "BW")
                return true;
            if (action.type == "B")
                backward.insert({action.stage, action.microbatch});
            if (action.type == "W")
                weight.insert({action.stage, action.microbatch});
        }
    return std::any_of(backward.begin(), backward.end(), [&](const auto& pair) { return weight.contains(pair); });
}

Op op_of(std::string_view type, bool legacy) {
    if (legacy && type == "B")
        return Op::BackwardInput;
    return type == "BW" ? Op::Backward : *op_from(type);
}

// The format leaves the other end of a transfer to the chain of stages.
int peer_of(Op op, const Action& action, int stages) {
    if (!is_transfer(op))
        return -1;
    const bool later = op == Op::SendForward || op == Op::RecvBackward;
    const int peer = action.stage + (later ? 1 : -1);
    if (peer < 0 || peer >= stages)
        fail_in(action.at,
                fmt::format("stage {} of {} has no stage {} it", action.stage, stages, later ? "after" : "before"),
                fmt::format("remove {}{}{}", action.stage, action.type, action.microbatch));
    return peer;
}

// Stages and micro-batches count from 0 without gaps, so neither number can exceed the number of cells.
void set_counts(Shape& shape, const std::vector<std::vector<Action>>& rows) {
    std::size_t cells = 0;
    for (const auto& row : rows)
        cells += row.size();
    for (const auto& row : rows)
        for (const Action& action : row) {
            const auto largest = static_cast<std::size_t>(std::max(action.stage, action.microbatch));
            if (largest >= cells)
                fail_in(action.at, fmt::format("number {} in a plan of {} tasks", largest, cells),
                        "stages and micro-batches count from 0 without gaps");
            shape.stages = std::max(shape.stages, action.stage + 1);
            shape.microbatches = std::max(shape.microbatches, action.microbatch + 1);
        }
}

void place_stages(Shape& shape, const std::vector<std::vector<Task>>& order, const std::string& file) {
    shape.placement.resize(static_cast<std::size_t>(shape.stages));
    for (std::size_t device = 0; device < order.size(); ++device)
        for (const Task& task : order[device])
            if (task.op == Op::Forward) {
                std::vector<int>& holders = shape.placement[static_cast<std::size_t>(task.stage)];
                if (holders.empty() || holders.back() != static_cast<int>(device))
                    holders.push_back(static_cast<int>(device));
            }
    for (int stage = 0; stage < shape.stages; ++stage)
        if (shape.placement[static_cast<std::size_t>(stage)].empty())
            fail(
                "stage {} has no F on any row\n --> {}\n  help: stages count from 0 without gaps; every micro-batch "
                "needs an F on every stage",
                stage, file);
}

std::vector<std::vector<Action>> parse_rows(std::string_view text, const std::string& file) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
        text.remove_suffix(1);
    std::vector<std::vector<Action>> rows;
    for (std::string_view line : split(text, '\n')) {
        if (!line.empty() && line.back() == '\r')
            line.remove_suffix(1);
        const int number = static_cast<int>(rows.size()) + 1;
        rows.push_back(parse_row(line, file, number));
        if (rows.back().empty())
            fail("row {} has no task\n --> {}:{}\n  help: one row per device, each with at least one stage", number,
                 file, number);
    }
    return rows;
}

}  // namespace

Plan parse_csv(const std::string& text, const std::string& name) {
    const std::vector<std::vector<Action>> rows = parse_rows(text, name);
    Plan plan;
    plan.schedule = std::filesystem::path(name).filename().string();
    plan.shape.devices = static_cast<int>(rows.size());
    set_counts(plan.shape, rows);
    const bool legacy = is_legacy(rows);
    std::map<Task, CellPlace> seen;
    bool transfers = false;
    for (const auto& row : rows) {
        plan.order.emplace_back();
        for (const Action& action : row) {
            const Op op = op_of(action.type, legacy);
            const Task task{
                op, action.stage, action.microbatch, 0, peer_of(op, action, plan.shape.stages), action.with_next};
            const auto [first, fresh] = seen.try_emplace(task, action.at);
            if (!fresh)
                fail_in(action.at, fmt::format("{} is there twice", print(task)),
                        fmt::format("remove it here or in row {}, cell {}", first->second.row, first->second.cell));
            plan.order.back().push_back(task);
            transfers = transfers || is_transfer(op);
        }
    }
    place_stages(plan.shape, plan.order, name);
    add_updates(plan);
    if (!transfers)
        add_transfers(plan);
    return plan;
}

Plan read_csv(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf()))
        fail("cannot read plan '{}'\n  help: write one with: pipewright plan CONFIG --format csv -o PLAN.csv", path);
    return parse_csv(text.str(), path);
}

std::string print_csv(const Plan& plan, bool transfers) {
    std::string text;
    for (const std::vector<Task>& order : plan.order) {
        std::string row;
        bool open = false;  // inside an overlapped pair
        for (const Task& task : order) {
            if (!has_csv_cell(task.op) || (is_transfer(task.op) && !transfers))
                continue;
            if (is_transfer(task.op) && std::abs(task.peer - task.stage) != 1)
                fail(
                    "{}: PyTorch's format has no transfers between stages that are not neighbours\n  help: use "
                    "--format csv, which leaves transfers out, or --format text",
                    print(task));
            if (task.slice != 0)
                fail("{}: PyTorch's format has no slices\n  help: use --format text", print(task));
            if (!row.empty())
                row += open ? ';' : ',';
            if (task.with_next && !open)
                row += '(';
            row += fmt::format("{}{}{}", task.stage, letters_of(task.op), task.microbatch);
            if (open && !task.with_next)
                row += fmt::format("){}", kOverlap);
            open = task.with_next;
        }
        text += row + '\n';
    }
    return text;
}

}  // namespace pw

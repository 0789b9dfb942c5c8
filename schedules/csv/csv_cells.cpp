#include "schedules/csv/csv_cells.h"

#include "workloads/error.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

namespace pw {

namespace {

constexpr std::string_view kOldForm = "write F0_s1 or B0_s1 for micro-batch 0 of stage 1, or 1F0 or 1B0";
constexpr std::string_view kStageTypes[] = {"REDUCE_GRAD", "WAIT_REDUCE_GRAD", "UNSHARD", "RESHARD"};
constexpr std::string_view kWait = "WAIT_";
constexpr std::string_view kWhole = "BW";  // B, where B means I
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::string_view kPairForm = "write two of F, B, I and W, as in (0F4;1B0)OVERLAP_F_B";

bool is_stage_type(std::string_view type) {
    return std::find(std::begin(kStageTypes), std::end(kStageTypes), type) != std::end(kStageTypes);
}

bool is_compute_type(std::string_view type) {
    const std::optional<Op> op = op_from(type);
    return type == kWhole || (op && is_compute(*op) && has_csv_cell(*op));
}

bool is_transfer_type(std::string_view type) {
    const bool waits = type.starts_with(kWait);
    const std::optional<Op> op = op_from(waits ? type.substr(kWait.size()) : type);
    return op && (waits ? is_send(*op) : is_transfer(*op));
}

std::string how_to_write() {
    std::string types, waits;
    for (const OpFacts& facts : kOpFacts)
        if (is_compute_type(facts.letters) || is_transfer(facts.op)) {
            types += fmt::format(" {}", facts.letters);
            if (is_send(facts.op))
                waits += fmt::format(" {}{}", kWait, facts.letters);
        }
    return fmt::format("write stage, type and micro-batch, as in 0F3; types:{}{}, and without micro-batch {}", types,
                       waits, fmt::join(kStageTypes, " "));
}

// Quotes part of a text. A file that is no plan must not fill the terminal or send control characters to it.
std::string quoted(std::string_view text) {
    constexpr std::size_t kLongest = 60;
    std::string shown(text.substr(0, kLongest));
    std::replace(shown.begin(), shown.end(), '\t', ' ');
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    return fmt::format("'{}{}'", shown, text.size() > kLongest ? "..." : "");
}

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

// Takes the digits at the beginning of `rest`. Returns -1 if there are none.
int take_number(std::string_view& rest, const CsvCell& cell) {
    const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (digits.empty())
        return -1;
    int value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
        fail_in(cell.at, fmt::format("{}: the number is too large", quoted(cell.text)), how_to_write());
    rest.remove_prefix(digits.size());
    return value;
}

std::string_view take_type(std::string_view& rest) {
    const std::string_view type = rest.substr(0, rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"));
    rest.remove_prefix(type.size());
    return type;
}

void refuse_rest(std::string_view rest, const CsvCell& cell) {
    if (!rest.empty())
        fail_in(cell.at, fmt::format("{}: unexpected {} at the end", quoted(cell.text), quoted(rest)), how_to_write());
}

void parse_stage_last(CsvCell& cell) {
    constexpr std::string_view kStage = "_s";
    cell.stage_last = true;
    const std::size_t middle = cell.text.find(kStage);
    std::string_view front = cell.text.substr(0, middle), back = cell.text.substr(middle + kStage.size());
    cell.type = take_type(front);
    if (cell.type != "F" && cell.type != "B")
        fail_in(cell.at, fmt::format("{}: PyTorch 2.4 had the types F and B only", quoted(cell.text)), kOldForm);
    cell.microbatch = take_number(front, cell);
    cell.stage = take_number(back, cell);
    if (cell.microbatch < 0 || cell.stage < 0)
        fail_in(cell.at, fmt::format("{} has no {}", quoted(cell.text), cell.stage < 0 ? "stage" : "micro-batch"),
                kOldForm);
    refuse_rest(front, cell);
    refuse_rest(back, cell);
}

[[noreturn]] void refuse_type(const CsvCell& cell) {
    std::string upper(cell.text);
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (upper != cell.text)
        fail_in(cell.at, fmt::format("{}: types are written in capital letters", quoted(cell.text)),
                fmt::format("write {}; {}", upper, how_to_write()));
    fail_in(cell.at, fmt::format("{}: unknown type {}", quoted(cell.text), quoted(cell.type)), how_to_write());
}

void parse_stage_first(CsvCell& cell) {
    std::string_view rest = cell.text;
    cell.stage = take_number(rest, cell);
    if (cell.stage < 0)
        fail_in(cell.at, fmt::format("{} does not start with a stage", quoted(cell.text)), how_to_write());
    cell.type = take_type(rest);
    const bool of_stage = is_stage_type(cell.type);
    if (!of_stage && !is_compute_type(cell.type) && !is_transfer_type(cell.type))
        refuse_type(cell);
    cell.microbatch = take_number(rest, cell);
    if (of_stage && cell.microbatch >= 0)
        fail_in(cell.at, fmt::format("{}: {} has no micro-batch", quoted(cell.text), cell.type),
                fmt::format("write {}{}", cell.stage, cell.type));
    refuse_rest(rest, cell);
    if (!of_stage && cell.microbatch < 0)
        fail_in(cell.at, fmt::format("{} has no micro-batch", quoted(cell.text)), how_to_write());
}

CsvCell parse_cell(std::string_view text, const CellPlace& at) {
    CsvCell cell{at, text, {}};
    const bool letter_first = !text.empty() && text.front() >= 'A' && text.front() <= 'Z';
    if (letter_first && text.find("_s") != text.npos)
        parse_stage_last(cell);
    else
        parse_stage_first(cell);
    return cell;
}

// "(0F4;1B0)OVERLAP_F_B": the first task runs overlapped with the second.
std::vector<CsvCell> parse_pair(std::string_view text, const CellPlace& at) {
    const std::size_t close = text.find(')');
    const auto refuse = [&](std::string_view fact) { fail_in(at, quoted(text) + ' ' + std::string(fact), kPairForm); };
    if (close == text.npos)
        refuse("has no )");
    const std::string_view inside = text.substr(1, close - 1);
    if (inside.find('(') != inside.npos)
        refuse("is a pair within a pair");
    if (text.substr(close + 1) != kOverlap)
        refuse("does not end in )OVERLAP_F_B");
    const std::vector<std::string_view> parts = split(inside, ';');
    if (parts.size() != 2)
        refuse("is not a pair of tasks");
    std::vector<CsvCell> cells;
    for (const std::string_view part : parts) {
        cells.push_back(parse_cell(trim(part), at));
        if (!is_compute_type(cells.back().type) || cells.back().stage_last)
            refuse(fmt::format("overlaps {}", part));
    }
    cells.front().with_next = true;
    return cells;
}

std::vector<CsvCell> parse_row(std::string_view row, const std::string& file, int number) {
    std::vector<CsvCell> cells;
    CellPlace at{file, number, 0};
    for (std::string_view text : split(row, ',')) {
        ++at.cell;
        text = trim(text);
        if (text.starts_with('('))
            for (CsvCell& cell : parse_pair(text, at))
                cells.push_back(std::move(cell));
        else if (!text.empty())
            cells.push_back(parse_cell(text, at));
    }
    return cells;
}

std::vector<std::vector<CsvCell>> parse_rows(std::string_view text, const std::string& file) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
        text.remove_suffix(1);
    std::vector<std::vector<CsvCell>> rows;
    for (std::string_view line : split(text, '\n')) {
        if (!line.empty() && line.back() == '\r')
            line.remove_suffix(1);
        const int number = static_cast<int>(rows.size()) + 1;
        rows.push_back(parse_row(line, file, number));
        if (std::none_of(rows.back().begin(), rows.back().end(), has_task))
            fail("row {} has no task\n --> {}:{}\n  help: one row per device, each with at least one stage", number,
                 file, number);
    }
    return rows;
}

const CsvCell* first_of_type(const CsvFile& file, std::string_view type) {
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row)
            if (cell.type == type)
                return &cell;
    return nullptr;
}

bool has_b_and_w_of_one_microbatch(const CsvFile& file) {
    std::set<std::pair<int, int>> backward, weight;
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row)
            if (cell.type == "B" || cell.type == "W")
                (cell.type == "B" ? backward : weight).insert({cell.stage, cell.microbatch});
    return std::any_of(backward.begin(), backward.end(), [&](const auto& pair) { return weight.contains(pair); });
}

void refuse_two_forms(const CsvFile& file) {
    const CsvCell& first = file.rows.front().front();
    for (const auto& row : file.rows)
        for (const CsvCell& cell : row)
            if (cell.stage_last != first.stage_last)
                fail_in(
                    cell.at,
                    fmt::format("{} is written differently from {} at {}", quoted(cell.text), quoted(first.text),
                                print(first.at)),
                    "F0_s1 is the form of PyTorch 2.4, 1F0 the form of later versions: write all cells in one of them");
}

CsvDialect dialect_of(const CsvFile& file) {
    refuse_two_forms(file);
    if (file.rows.front().front().stage_last)
        return CsvDialect::StageLast;
    const CsvCell *input = first_of_type(file, "I"), *both = first_of_type(file, kWhole);
    if (input && both)
        fail_in(both->at,
                fmt::format("{}: BW was the full backward of PyTorch 2.5, which had no I, unlike {} at {}",
                            quoted(both->text), quoted(input->text), print(input->at)),
                fmt::format("write {}B{}", both->stage, both->microbatch));
    const bool old = both || (!input && has_b_and_w_of_one_microbatch(file));
    return old ? CsvDialect::InputIsB : CsvDialect::Current;
}

std::string named(const CsvCell& cell, std::string_view type) {
    return cell.microbatch < 0 ? fmt::format("{}{}", cell.stage, type)
                               : fmt::format("{}{}{}", cell.stage, type, cell.microbatch);
}

void end_wait(const CsvCell& wait, std::map<std::string, const CsvCell*>& pending) {
    if (pending.erase(named(wait, wait.type)) > 0)
        return;
    const std::string awaited = named(wait, wait.type.substr(kWait.size()));
    fail_in(wait.at, fmt::format("{} has no {} before it in its row to wait for", wait.text, awaited),
            fmt::format("put it after {}, once, or remove it", awaited));
}

}  // namespace

void fail_in(const CellPlace& at, const std::string& fact, std::string_view help) {
    fail("{}\n --> {} (device {})\n  help: {}", fact, print(at), at.row - 1, help);
}

bool is_sharding(const CsvCell& cell) { return cell.type == "UNSHARD" || cell.type == "RESHARD"; }

bool is_wait(const CsvCell& cell) { return cell.type.starts_with(kWait); }

bool has_task(const CsvCell& cell) { return !is_sharding(cell) && !is_wait(cell); }

Op op_of(const CsvCell& cell, CsvDialect dialect) {
    if (cell.type == "REDUCE_GRAD")
        return Op::SumGradients;
    if (cell.type == kWhole)
        return Op::Backward;
    if (cell.type == "B" && dialect == CsvDialect::InputIsB)
        return Op::BackwardInput;
    return *op_from(cell.type);
}

std::string csv_cell(const Task& task, CsvDialect dialect) {
    if (task.op == Op::SumGradients)
        return fmt::format("{}REDUCE_GRAD", task.stage);
    std::string_view type = letters_of(task.op);
    if (dialect == CsvDialect::StageLast)
        return fmt::format("{}{}_s{}", type, task.microbatch, task.stage);
    if (dialect == CsvDialect::InputIsB && task.op == Op::Backward)
        type = kWhole;
    if (dialect == CsvDialect::InputIsB && task.op == Op::BackwardInput)
        type = "B";
    return fmt::format("{}{}{}", task.stage, type, task.microbatch);
}

void check_waits(const CsvFile& file) {
    const bool for_sends = first_of_type(file, "WAIT_SEND_F") || first_of_type(file, "WAIT_SEND_B");
    const bool for_sums = first_of_type(file, "WAIT_REDUCE_GRAD");
    for (const auto& row : file.rows) {
        std::map<std::string, const CsvCell*> pending;  // by the wait that is due
        for (const CsvCell& cell : row)
            if (is_wait(cell))
                end_wait(cell, pending);
            else if (cell.type == "REDUCE_GRAD" ? for_sums : for_sends && cell.type.starts_with("SEND_"))
                pending[named(cell, fmt::format("{}{}", kWait, cell.type))] = &cell;
        for (const auto& [wait, cell] : pending)
            fail_in(cell->at, fmt::format("{} has no {} in its row, but others of the file have one", cell->text, wait),
                    fmt::format("add {} after it, or remove all of them", wait));
    }
}

CsvFile parse_cells(std::string_view text, const std::string& name) {
    CsvFile file;
    file.rows = parse_rows(text, name);
    file.dialect = dialect_of(file);
    return file;
}

}  // namespace pw

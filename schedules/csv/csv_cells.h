// Internals of the CSV reader: the cells of a file as written, and the rules that they must satisfy.
#pragma once

#include "schedules/csv/csv.h"

#include <string_view>

namespace pw {

enum class CsvDialect {
    Current,    // 0I1 0W1, or 0B1 for both
    InputIsB,   // PyTorch 2.5 and 2.6: 0B1 0W1, 0BW1
    StageLast,  // PyTorch 2.4: F1_s0 B1_s0
};

// A task as written. The views refer to the text of the file and to constants.
struct CsvCell {
    CellPlace at;
    std::string_view text, type;
    int stage = 0;
    int microbatch = -1;      // -1 for a type without a micro-batch
    bool with_next = false;   // the first of an overlapped pair
    bool stage_last = false;  // written as in PyTorch 2.4
};

struct CsvFile {
    std::vector<std::vector<CsvCell>> rows;  // none is empty
    CsvDialect dialect = CsvDialect::Current;
};

// Parses the cells, and checks that all are of one dialect.
CsvFile parse_cells(std::string_view text, const std::string& name);

// UNSHARD and RESHARD: parameters are never sharded here.
bool is_sharding(const CsvCell& cell);
// WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD: here, no task waits for sends or sums earlier than necessary.
bool is_wait(const CsvCell& cell);
bool has_task(const CsvCell& cell);  // all remaining cells
Op op_of(const CsvCell& cell, CsvDialect dialect);
std::string csv_cell(const Task& task, CsvDialect dialect);

// Checks that every wait follows what it waits for. In a file with waits for sends each SEND must have a wait, and
// likewise each REDUCE_GRAD.
void check_waits(const CsvFile& file);
// Checks that every task of every stage and micro-batch is there, in one form and in a single row.
void check_cells(const CsvPlan& read, CsvDialect dialect);
// Checks that transfers are paired and complete, and that no row has a task before its inputs. The plan has been
// checked and its stages placed.
void check_rows(const CsvPlan& read, CsvDialect dialect);

[[noreturn]] void fail_in(const CellPlace& at, const std::string& fact, std::string_view help);

}  // namespace pw

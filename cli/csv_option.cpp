// The option --csv of simulate, search and compare.
#include "cli/command.h"
#include "cli/streams.h"
#include "report/csv_table.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <CLI/CLI.hpp>

namespace pw {

void add_csv(CLI::App& command, std::string& file) {
    command.add_option("--csv", file, "write the table of the results as CSV; - for standard output")
        ->type_name("FILE");
}

void write_csv(const std::string& file, const Json& rows) {
    if (file == "-")
        write_result(csv_of(rows));
    else if (!file.empty())
        write_file(file, csv_of(rows));
}

void check_csv(const std::string& file, bool json) {
    if (file == "-" && json)
        fail("--json and --csv - both print to standard output\n  help: name a file, as in --csv table.csv");
}

}  // namespace pw

// A file with a line of JSON for each step of a run, written as the step ends.
#pragma once

#include "exec/execute.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pw {

class StepLog {
public:
    // Opens the file. A run that resumes after a step adds to it, and prints a note if the file has later steps, which
    // are in it twice then. `samples` is the number of each step. An empty name means no file. Throws Error (RunFailed)
    // where it cannot be opened.
    StepLog(std::string path, std::int64_t samples, std::optional<int> resumed_after);
    ~StepLog();
    StepLog(const StepLog&) = delete;
    StepLog& operator=(const StepLog&) = delete;

    // Writes the line at once, so that a killed run leaves it. If that fails, a warning says so, and no line follows.
    void add(const Progress& progress);

private:
    std::string path_;
    std::int64_t samples_;
    int file_ = -1;
};

}  // namespace pw

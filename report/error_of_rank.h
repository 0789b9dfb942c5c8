// A failure of one of several ranks.
#pragma once

#include "job/job.h"
#include "workloads/error.h"

#include <functional>
#include <string>
#include <utility>

namespace pw {

// Names the stages that the rank has, "stage 2" or "stages 2, 3".
class ErrorOfRank : public Error {
public:
    ErrorOfRank(const Error& error, std::string stages) : Error(error), stages_(std::move(stages)) {}
    const std::string& stages() const { return stages_; }

private:
    std::string stages_;
};

// Calls `act`, the work of this rank for the job. Throws an Error of `act` as ErrorOfRank, but StoppedByOthers
// (exec/all_ranks.h) unchanged.
void as_this_rank(const Job& job, const std::function<void()>& act);

}  // namespace pw

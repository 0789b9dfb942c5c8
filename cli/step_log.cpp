#include "cli/step_log.h"

#include "cli/streams.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pw {

StepLog::StepLog(std::string path, std::int64_t samples, bool resumes) : path_(std::move(path)), samples_(samples) {
    if (path_.empty())
        return;
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (resumes ? O_APPEND : O_TRUNC), 0666);
    if (file_ < 0)
        fail_with(ExitCode::RunFailed, "cannot write '{}': {}", path_, std::strerror(errno));
}

StepLog::~StepLog() {
    if (file_ >= 0)
        ::close(file_);
}

void StepLog::add(const Progress& progress) {
    if (file_ < 0)
        return;
    const double seconds = static_cast<double>(progress.step_time) * 1e-9;
    const Json line = {{"step", progress.step},
                       {"steps", progress.steps},
                       {"loss", progress.loss},
                       {"step_time_ns", progress.step_time},
                       {"samples_per_second", seconds > 0 ? static_cast<double>(samples_) / seconds : 0}};
    const std::string text = line.dump() + '\n';
    if (::write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size()))
        return;
    print_warning(fmt::format("cannot write '{}': {}; the steps from {} on are not in it", path_, std::strerror(errno),
                              progress.step));
    ::close(std::exchange(file_, -1));
}

}  // namespace pw

#include "cli/step_log.h"

#include "cli/streams.h"
#include "workloads/error.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace pw {

namespace {

// Returns the step of the last line, of a file that may be anything, or 0 if there is no such line.
int last_step_in(const std::string& path) {
    constexpr std::streamoff kMost = 4096;  // bytes of a line
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = file.tellg(), begin = std::max<std::streamoff>(size - kMost, 0);
    if (size <= 0)
        return 0;
    std::string end(static_cast<std::size_t>(size - begin), '\0');
    file.seekg(begin);
    file.read(end.data(), static_cast<std::streamsize>(end.size()));
    end.erase(end.find_last_not_of('\n') + 1);
    try {
        const Json line = parse_json<Json>(end.substr(end.rfind('\n') + 1), path);
        const auto step = line.is_object() ? line.find("step") : line.end();
        return step != line.end() && step->is_number_integer() ? step->get<int>() : 0;
    } catch (const Error&) {
        return 0;
    }
}

}  // namespace

StepLog::StepLog(std::string path, std::int64_t samples, std::optional<int> resumed_after)
    : path_(std::move(path)), samples_(samples) {
    if (path_.empty())
        return;
    std::error_code error;
    if (resumed_after && std::filesystem::is_regular_file(path_, error))
        if (const int last = last_step_in(path_); last > *resumed_after)
            print_note(
                fmt::format("'{}' has steps up to {} already: {} to {} are in it again from here on, and the "
                            "later lines are those of this run",
                            path_, last, *resumed_after + 1, last));
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (resumed_after ? O_APPEND : O_TRUNC), 0666);
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

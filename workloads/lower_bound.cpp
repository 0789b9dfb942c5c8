#include "workloads/lower_bound.h"

#include "workloads/error.h"

#include <algorithm>
#include <string>

namespace pw {

namespace {

constexpr double kLastDigits = 1e-9;  // as a share

[[noreturn]] void refuse(const std::string& bound, const std::string& reached, std::string_view what) {
    fail_with(
        ExitCode::RunFailed,
        "internal error: the lower bound of {} is {}, but {} is reached\n  help: this is a mistake in pipewright: "
        "please report it with the config and the command",
        what, bound, reached);
}

}  // namespace

void check_lower_bound(Ns bound, Ns reached, std::string_view what) {
    if (bound > reached)
        refuse(fmt::format("{} ns", bound), fmt::format("{} ns", reached), what);
}

void check_lower_bound(double bound, double reached, std::string_view what) {
    if (bound > reached + kLastDigits * std::max(bound, reached))
        refuse(fmt::format("{:.17g}", bound), fmt::format("{:.17g}", reached), what);
}

}  // namespace pw

// The one exception of the project. `main` maps it to an exit code; nothing below `main` exits.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace pw {

enum class ExitCode {
    Ok = 0,
    RunFailed = 1,    // device, I/O, lost peer
    BadInput = 2,     // usage, malformed or incomplete input
    Infeasible = 3,   // does not fit, or deadlock proven
    CheckFailed = 4,  // --max-error, checksum, accuracy bar
    PeerSilent = 5,   // hang
};

class Error : public std::runtime_error {
public:
    Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
    ExitCode code() const { return code_; }

private:
    ExitCode code_;
};

// Throws Error (BadInput): the message says what, where and what to do.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
    throw Error(ExitCode::BadInput, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_with(ExitCode code, fmt::format_string<Args...> text, Args&&... args) {
    throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace pw

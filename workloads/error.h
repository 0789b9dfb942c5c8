// The only exception of the project. `main` maps it to an exit code. Nothing below `main` exits.
#pragma once

#include "workloads/setting.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pw {

enum class ExitCode {
    Ok = 0,
    RunFailed = 1,    // device, I/O, lost peer
    BadInput = 2,     // usage, malformed or incomplete input
    Infeasible = 3,   // does not fit, or deadlock proven
    CheckFailed = 4,  // --max-error, checksum, accuracy bar
    PeerSilent = 5,   // hang
};

// what() is the text for people: the fact, with its place if known, and the help.
class Error : public std::runtime_error {
public:
    // `text` is "fact" or "fact\n  help: way out". `settings` are the settings to change, the likeliest mistake first.
    Error(ExitCode code, const std::string& text, std::vector<Setting> settings = {});
    // An error of a file or of a config. `text` has the place, too.
    Error(ExitCode code, std::string fact, std::string help, std::string key, std::string place,
          const std::string& text);

    ExitCode code() const { return code_; }
    const std::string& fact() const { return fact_; }
    const std::string& help() const { return help_; }  // empty: none
    const std::string& key() const { return key_; }    // of the config: "pipeline.stages", empty: not known
    // "cfg.yaml:14:13", the file with line and column, or the key of an override. Empty: not known.
    const std::string& place() const { return place_; }
    const std::vector<Setting>& settings() const { return settings_; }

private:
    ExitCode code_;
    std::string fact_, help_, key_, place_;
    std::vector<Setting> settings_;
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

// Throws Error (BadInput) about settings.
template <class... Args>
[[noreturn]] void fail_about(std::vector<Setting> settings, fmt::format_string<Args...> text, Args&&... args) {
    throw Error(ExitCode::BadInput, fmt::format(text, std::forward<Args>(args)...), std::move(settings));
}

}  // namespace pw

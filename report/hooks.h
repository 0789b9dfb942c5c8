// How a long call reports its progress, and how its caller stops it.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>

namespace pw {

// Returns the state of a call that has taken this time: "12 s: point 3 of 12".
inline std::string with_time(const std::string& state, std::chrono::duration<double> taken) {
    return fmt::format("{:.0f} s: {}", taken.count(), state);
}

// Both may be called often, and from another thread than the caller's.
struct Hooks {
    std::function<void(const std::string& state)> progress = {};  // receives a line like "point 3 of 12"
    // Once this returns true, the call ends soon: with its results so far, or by Error (RunFailed) if there are none.
    std::function<bool()> should_stop = {};

    void show(const std::string& state) const {
        if (progress)
            progress(state);
    }
    bool stops() const { return should_stop && should_stop(); }
};

}  // namespace pw

// What a long call says and asks while it works.
#pragma once

#include <functional>
#include <string>

namespace pw {

// Both may be called often, and from another thread than the caller's.
struct Hooks {
    std::function<void(const std::string& state)> progress = {};  // receives a line like "point 3 of 12"
    // Once it returns true, the call ends soon: with what it has so far, or by Error (RunFailed) where that is nothing.
    std::function<bool()> should_stop = {};

    void show(const std::string& state) const {
        if (progress)
            progress(state);
    }
    bool stops() const { return should_stop && should_stop(); }
};

}  // namespace pw

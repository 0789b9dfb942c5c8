// Ends a process that waits for other ranks in a library call that does not return.
#pragma once

#include "exec/system/periodic_call.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <string>
#include <utility>

namespace pw {

class Watchdog {
public:
    // Unless the object is destroyed within `time`, the process prints the text as an error and exits with code 5.
    // Time in which the machine sleeps does not count.
    Watchdog(Ns time, std::string text)
        : checks_(time / kChecks, "a watchdog", [text = std::move(text), left = kChecks]() mutable {
              if (--left == 0)
                  end_process(text, ExitCode::PeerSilent);
          }) {}

private:
    static constexpr int kChecks = 16;
    PeriodicCall checks_;
};

}  // namespace pw

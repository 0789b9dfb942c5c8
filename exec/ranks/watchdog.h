// Ends a process that waits for others in a library that does not come back.
#pragma once

#include "exec/system/every.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <string>
#include <utility>

namespace pw {

class Watchdog {
public:
    // Unless it is destroyed within `time`, the process says the text as an error and exits with code 5. Time in which
    // the machine slept does not count.
    Watchdog(Ns time, std::string text)
        : looks_(time / kLooks, "a watchdog", [text = std::move(text), left = kLooks]() mutable {
              if (--left == 0)
                  end_process(text, ExitCode::PeerSilent);
          }) {}

private:
    static constexpr int kLooks = 16;
    Every looks_;
};

}  // namespace pw

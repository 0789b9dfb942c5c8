#include "exec/engine/run_monitor.h"

#include "exec/engine/planning.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

void RunMonitor::check_devices(Ns passed) {
    try {
        devices_.check(limits_, passed);
    } catch (const Error&) {
        is_silent_ = true;
        throw;
    }
}

// Without this check, the wait for a message that is lost while no device works would never end.
void RunMonitor::check_ranks(Ns passed) {
    if (steps_begun_)
        devices_.check(limits_, passed);
    const int gatherings = gatherings_;
    if (gatherings % 2 == 0 || (steps_begun_ && !devices_.all_away()) ||
        std::exchange(gatherings_seen_, gatherings) != gatherings)
        gathers_for_ = 0;
    else
        gathers_for_ += std::min(passed, 2 * interval_);
    if (gathers_for_ > times_generous(timeout_))
        fail_with(ExitCode::PeerSilent, "the ranks have made no progress for {}: a message between them must be lost",
                  print_time(gathers_for_));
}

}  // namespace pw

#include "exec/ranks/shared_failure.h"

#include "exec/system/threads.h"

#include <exception>
#include <utility>

namespace pw {

void SharedFailure::open_line(Ns timeout, Ns slice, Line::Watcher watcher) {
    watcher.fail = [this](const std::exception_ptr& error) { guard([&] { std::rethrow_exception(error); }); };
    line_ = std::make_unique<Line>(*ranks_, timeout, slice, std::move(watcher));
    line_->start();
}

// Whoever cannot be reached may be gone, or have failed: the line hears of it soon.
void SharedFailure::wait_for_cause() {
    constexpr Ns kLook = 1'000'000;
    for (Ns waited = 0; line_ && waited < kGrace && !happened(); waited += kLook)
        sleep_for(kLook);
}

void SharedFailure::stop() {
    stop_();
    if (ranks_ == nullptr)
        return;
    ranks_->give_up();
    tell_others();
}

// What this rank has found out itself: the others stop, too.
void SharedFailure::tell_others() {
    if (!line_)
        return;
    try {
        first_.rethrow();
    } catch (const StoppedByOthers&) {
    } catch (const Error& error) {
        line_->tell_failure(error.what(), error.code());
    } catch (const std::exception& error) {
        line_->tell_failure(error.what(), ExitCode::RunFailed);
    }
}

void SharedFailure::rethrow() {
    try {
        first_.rethrow();
    } catch (const StoppedByOthers&) {
        if (line_)
            line_->wait_for_others();
        throw;
    }
}

void SharedFailure::leave() {
    if (!line_)
        return;
    line_->leave();
    rethrow();
}

}  // namespace pw

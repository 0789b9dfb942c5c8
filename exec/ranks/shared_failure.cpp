#include "exec/ranks/shared_failure.h"

#include "exec/system/threads.h"

#include <exception>
#include <utility>

namespace pw {

void SharedFailure::open_control_connection(Ns timeout, Ns slice, ControlConnection::Callbacks callbacks) {
    callbacks.fail = [this](const std::exception_ptr& error) { guard([&] { std::rethrow_exception(error); }); };
    connection_ = std::make_unique<ControlConnection>(ranks_, timeout, slice, std::move(callbacks));
    connection_->start();
}

// A rank that cannot be reached may be gone or have failed: the control connection will report it.
void SharedFailure::wait_for_cause() {
    constexpr Ns kBetweenPolls = 1'000'000;
    for (Ns waited = 0; connection_ && waited < kGrace && !happened(); waited += kBetweenPolls)
        sleep_for(kBetweenPolls);
}

void SharedFailure::stop() {
    stop_();
    ranks_.give_up();
    send_failure();
}

// Sends only a failure that began on this rank.
void SharedFailure::send_failure() {
    if (!connection_)
        return;
    try {
        first_.rethrow();
    } catch (const StoppedByOthers&) {
    } catch (const Error& error) {
        connection_->send_failure(error.what(), error.code());
    } catch (const std::exception& error) {
        connection_->send_failure(error.what(), ExitCode::RunFailed);
    }
}

void SharedFailure::rethrow() {
    try {
        first_.rethrow();
    } catch (const StoppedByOthers&) {
        if (connection_)
            connection_->wait_for_others();
        throw;
    }
}

void SharedFailure::leave() {
    if (!connection_)
        return;
    connection_->leave();
    rethrow();
}

}  // namespace pw

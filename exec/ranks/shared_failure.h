// The first failure of a process, which may be a rank among several that report their failures to each other.
#pragma once

#include "exec/ranks/control_connection.h"
#include "exec/ranks/ranks.h"
#include "workloads/first_failure.h"
#include "workloads/units.h"

#include <functional>
#include <memory>

namespace pw {

class SharedFailure {
public:
    // `stop` ends the waits of this process's threads. It is called after the first failure and after each failure
    // that follows from it.
    SharedFailure(Ranks& ranks, std::function<void()> stop) : ranks_(ranks), stop_(std::move(stop)) {}

    // All ranks call it together. From then on the failure of a rank is reported to all ranks. callbacks.fail is set
    // here.
    void open_control_connection(Ns timeout, Ns slice, ControlConnection::Callbacks callbacks);
    bool has_control_connection() const { return connection_ != nullptr; }

    template <class Act>
    void guard(Act act) {
        const auto with_cause = [&] {
            try {
                act();
            } catch (const Unreachable&) {
                wait_for_cause();
                throw;
            }
        };
        first_.guard(with_cause, [&] { stop(); });
    }
    // Does the same without reporting it: for failures found while the run is already stopping.
    template <class Act>
    void note(Act act) {
        first_.guard(act, [] {});
    }
    bool happened() const { return first_.happened(); }
    // Throws the failure, if there is one. A rank stopped by other ranks first waits until they have reported it.
    void rethrow();
    // Called when all is done: ends the connection, and throws a failure that has happened in the meantime.
    void leave();

    static constexpr Ns kGrace = 2'000'000'000;  // for the failed rank to report the cause

private:
    void wait_for_cause();
    void stop();
    void send_failure();

    Ranks& ranks_;
    const std::function<void()> stop_;
    FirstFailure first_;
    std::unique_ptr<ControlConnection> connection_;  // destroyed first: its thread uses all of the above
};

}  // namespace pw

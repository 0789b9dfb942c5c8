// The first failure of a process that is one of several ranks: the other ranks hear of it, and it of theirs.
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
    // `ranks` is null where there is one process. `stop` lets go what the threads of this one wait for; it is called
    // after every failure, the first and those that follow from it.
    SharedFailure(Ranks* ranks, std::function<void()> stop) : ranks_(ranks), stop_(std::move(stop)) {}

    // All ranks open their lines together. From then on they tell each other of failures; the watcher's own `fail` is
    // set here.
    void open_line(Ns timeout, Ns slice, Line::Watcher watcher);
    bool has_line() const { return line_ != nullptr; }

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
    // The same, but nobody hears of it: for what is found out when all stop already.
    template <class Act>
    void note(Act act) {
        first_.guard(act, [] {});
    }
    bool happened() const { return first_.happened(); }
    void rethrow();  // if there is one; who has been stopped by others lets them speak first
    // What all ranks did is done: takes leave of them, and throws what failed meanwhile.
    void leave();

    static constexpr Ns kGrace = 2'000'000'000;  // for whoever knows more

private:
    void wait_for_cause();
    void stop();
    void tell_others();

    Ranks* const ranks_;
    const std::function<void()> stop_;
    FirstFailure first_;
    std::unique_ptr<Line> line_;  // the first to end: it looks at all of the above
};

}  // namespace pw

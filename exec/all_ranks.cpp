#include "exec/all_ranks.h"

#include "exec/engine/watch.h"
#include "exec/ranks/line.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/watchdog.h"
#include "exec/system/threads.h"
#include "workloads/first_failure.h"

#include <optional>

namespace pw {

namespace {

// The line of a command, on which nothing is said but that its ranks are there, and who has failed.
class CommandLine {
public:
    CommandLine(Ranks& ranks, Ns timeout)
        : line_(ranks, timeout, Watch::slice_of(timeout),
                {.tell_signs = [](Mail&) {},
                 .hear_signs = [](MailReader&) {},
                 .look = [](Ns) {},
                 .describe = [](int rank) { return fmt::format("rank {}", rank); },
                 .fail =
                     [this, &ranks](const std::exception_ptr& error) {
                         failure_.guard([&] { std::rethrow_exception(error); }, [&] { ranks.give_up(); });
                     }}) {
        line_.start();
    }

    void attempt(const std::function<void()>& act) {
        try {
            act();
            line_.leave();
        } catch (const StoppedByOthers&) {
            throw;
        } catch (const Unreachable& error) {  // the line may know why
            for (Ns waited = 0; waited < kGrace && !failure_.happened(); waited += kLook)
                sleep_for(kLook);
            rethrow();
            line_.tell_failure(error.what(), error.code());
            throw;
        } catch (const Error& error) {
            line_.tell_failure(error.what(), error.code());
            throw;
        } catch (const std::exception& error) {
            line_.tell_failure(error.what(), ExitCode::RunFailed);
            throw;
        }
        rethrow();
    }

private:
    void rethrow() {
        try {
            failure_.rethrow();
        } catch (const StoppedByOthers&) {
            line_.wait_for_others();
            throw;
        }
    }

    static constexpr Ns kGrace = 2'000'000'000, kLook = 1'000'000;
    FirstFailure failure_;
    Line line_;
};

}  // namespace

void with_all_ranks(const Config& config, const std::function<void()>& act) {
    if (config.run.transport != RunConfig::Transport::Mpi)
        return act();
    const Ns timeout = config.run.timeout;
    const std::string text = fmt::format("the other ranks have not come within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch(std::in_place, timeout, text);
    Ranks& ranks = join_ranks();
    if (ranks.size() == 1) {
        until_all_watch.reset();
        return act();
    }
    until_all_watch.emplace(2 * timeout, text);  // who does not call within one is named by rank 0
    CommandLine line(ranks, timeout);
    until_all_watch.reset();
    line.attempt(act);
}

}  // namespace pw

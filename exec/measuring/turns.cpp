#include "exec/measuring/turns.h"

#include "exec/system/threads.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <atomic>

namespace pw {

namespace {

int turn_of(int step, int steps, int turns) { return static_cast<int>(std::int64_t{step} * turns / steps); }

// The order of the turns. Runs that have ended are skipped.
class TurnOrder {
public:
    TurnOrder(std::size_t takers, const std::function<void()>& between) : has_left_(takers, false), between_(between) {}

    // The runs of a taker tell all ranks at once that they were asked to stop, so that the takers of all ranks stop
    // alike.
    void stop() { stopped_ = true; }
    bool is_stopped() const { return stopped_; }
    void wait_for_turn(std::size_t taker) {
        std::unique_lock lock(mutex_);
        wait(lock, taker);
    }
    void pass_on(std::size_t taker) {
        std::unique_lock lock(mutex_);
        pass(lock);
        wait(lock, taker);
    }
    void leave(std::size_t taker) {
        std::unique_lock lock(mutex_);
        has_left_[taker] = true;
        pass(lock);
    }
    void abort() {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        changed_.notify_all();
    }

private:
    void wait(std::unique_lock<Mutex>& lock, std::size_t taker) {
        changed_.wait(lock, [&] { return aborted_ || turn_ == taker; });
        if (aborted_)
            fail_with(ExitCode::RunFailed, "stopped because another run failed");
    }
    void pass(std::unique_lock<Mutex>& lock) {
        lock.unlock();
        between_();
        lock.lock();
        for (std::size_t passed = 0; passed < has_left_.size(); ++passed) {
            turn_ = (turn_ + 1) % has_left_.size();
            if (!has_left_[turn_])
                break;
        }
        changed_.notify_all();
    }

    Mutex mutex_;
    Condition changed_;
    std::size_t turn_ = 0;
    std::vector<bool> has_left_;
    bool aborted_ = false;
    std::atomic<bool> stopped_ = false;
    const std::function<void()>& between_;
};

std::vector<RunResult> take_turns(const TurnTaker& taker, std::size_t number, int turns, TurnOrder& order) {
    std::vector<RunResult> results;
    RunOptions options = taker.options;
    options.should_stop = [&] {
        return order.is_stopped() || (taker.options.should_stop && taker.options.should_stop());
    };
    const auto run_now = [&] {
        results.push_back(run(*taker.job, options));
        if (results.back().asked_to_stop)
            order.stop();
    };
    order.wait_for_turn(number);
    if (taker.job->plan.asynchronous) {
        for (int turn = 0; turn < turns && !order.is_stopped(); ++turn) {
            if (turn > 0)
                order.pass_on(number);
            if (runs_in_turn(turn, turns, taker.every) && !order.is_stopped())
                run_now();
        }
        return results;
    }
    options.between_steps = [&](int done, int steps) {
        if (begins_turn(done, steps, turns))
            order.pass_on(number);
    };
    if (!order.is_stopped())
        run_now();
    return results;
}

}  // namespace

int turns_of(int steps, int wanted) { return std::max(1, std::min(wanted, steps / 2)); }

bool runs_in_turn(int turn, int turns, int every) { return turn % every == (std::min(every, turns) - 1) / 2; }

bool begins_turn(int step, int steps, int turns) {
    return step == 0 || turn_of(step, steps, turns) != turn_of(step - 1, steps, turns);
}

std::vector<std::vector<RunResult>> run_in_turns(const std::vector<TurnTaker>& takers, int turns,
                                                 const std::function<void()>& between) {
    std::vector<std::vector<RunResult>> results(takers.size());
    TurnOrder order(takers.size(), between);
    FirstFailure failure;
    std::vector<Thread> threads;
    const auto stop = [&] { order.abort(); };
    const auto take = [&](std::size_t number) {
        const auto take_all = [&] {
            results[number] = take_turns(takers[number], number, turns, order);
            order.leave(number);
        };
        failure.guard(take_all, stop);
    };
    between();
    failure.guard(
        [&] {
            for (std::size_t number = 0; number < takers.size(); ++number)
                threads.push_back(start_thread("a run that takes turns", [&take, number] { take(number); }));
        },
        stop);
    for (Thread& thread : threads)
        thread.join();
    failure.rethrow();
    return results;
}

}  // namespace pw

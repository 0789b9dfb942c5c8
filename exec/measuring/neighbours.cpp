#include "exec/measuring/neighbours.h"

#include "exec/measuring/bench.h"

#include <fmt/format.h>

#include <memory>

namespace pw {

Neighbours::Neighbours(const Setup& setup, const Model& model, const Dataset& data, const CorePlan& cores,
                       const OpenDevice& open, int samples)
    : count_(static_cast<int>(cores.cores.size()) - 1) {
    const auto neighbour = [&setup, &model, &data, &cores, &open, this, samples](int device) {
        const auto compute = [&] {
            pin_this_thread(cores.cores[device]);
            const std::shared_ptr<const Kernels> kernels = open(device);
            Bench bench(setup, model, data, *kernels, samples, kInFlight);
            while (wait_for_work())
                while (is_state(State::Compute))
                    bench.run_mini_batch(nullptr);
        };
        failure_.guard(compute, [this] { set_state(State::End); });
    };
    const auto start_all = [&] {
        for (int device = 1; device <= count_; ++device)
            threads_.push_back(start_thread(fmt::format("device {}", device), [=] { neighbour(device); }));
    };
    failure_.guard(start_all, [] {});
    wait_until_resting(count_);
}

Neighbours::~Neighbours() { end(); }

void Neighbours::start() {
    set_state(State::Compute);
    wait_until_resting(0);
}

void Neighbours::stop() {
    set_state(State::Rest);
    wait_until_resting(count_);
}

void Neighbours::set_state(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    changed_.notify_all();
}

bool Neighbours::is_state(State state) {
    const std::lock_guard lock(mutex_);
    return state_ == state;
}

// Called by a neighbour. Returns true if it has to compute, false if it has to end.
bool Neighbours::wait_for_work() {
    std::unique_lock lock(mutex_);
    ++resting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return state_ != State::Rest; });
    --resting_;
    changed_.notify_all();
    return state_ == State::Compute;
}

void Neighbours::wait_until_resting(int count) {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return resting_ == count || failure_.happened(); });
    }
    if (failure_.happened())
        end();
    failure_.rethrow();
}

void Neighbours::end() {
    set_state(State::End);
    for (Thread& thread : threads_)
        if (thread.joinable())
            thread.join();
}

}  // namespace pw

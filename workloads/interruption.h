// Long work that can be ended from inside, so that its caller need not wait for its end.
#pragma once

#include <functional>
#include <utility>

namespace pw {

// While an Interruption exists, interruption points in the work of its thread call `ask`. `ask` throws to end the work.
// The work is useless then, and what it changes must not be used either.
class Interruption {
public:
    explicit Interruption(std::function<void()> ask) : ask_(std::move(ask)), outer_(std::exchange(innermost, this)) {}
    ~Interruption() { innermost = outer_; }
    Interruption(const Interruption&) = delete;
    Interruption& operator=(const Interruption&) = delete;

    static void point() {
        if (innermost != nullptr)
            innermost->ask_();
    }

private:
    static inline thread_local const Interruption* innermost = nullptr;

    std::function<void()> ask_;
    const Interruption* outer_;
};

// One call in `every` is a point: for loops whose turns are short.
class RareInterruption {
public:
    explicit RareInterruption(unsigned every) : every_(every) {}
    void point() {
        if (++calls_ % every_ == 0)
            Interruption::point();
    }

private:
    unsigned every_, calls_ = 0;
};

}  // namespace pw

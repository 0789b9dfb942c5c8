// When a search stops and answers with what it has: at a point in time, or when its caller says so.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

namespace pw {

struct SearchLimits {
    double seconds = 60;
    std::size_t downsets = 1'000'000;        // the most of an exact search (beyond, only one order of the graph)
    std::function<bool()> should_stop = {};  // asked often
};

// Thrown if the time is up in the middle of work that is useless unless complete.
struct TimeIsUp {};

class Deadline {
public:
    // The deadline reads the clock and asks should_stop at every `rarely`-th call.
    explicit Deadline(double seconds, std::size_t rarely = 4096, std::function<bool()> should_stop = {})
        : end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                      std::min(std::chrono::duration<double>(seconds), kUnlimited))),
          rarely_(rarely),
          should_stop_(std::move(should_stop)) {}
    // Once true, the result stays true.
    bool passed() {
        if (!passed_ && ++asked_ % rarely_ == 0)
            passed_ = std::chrono::steady_clock::now() >= end_ - room_ || (should_stop_ && should_stop_());
        return passed_;
    }
    // Returns whether the time is up, for work that is ended from inside: no time is left for later work.
    bool is_over() const { return (should_stop_ && should_stop_()) || std::chrono::steady_clock::now() >= end_; }
    // Infinite where there is no limit.
    std::chrono::duration<double> left() const {
        const std::chrono::duration<double> left = end_ - std::chrono::steady_clock::now();
        return left < kUnlimited / 2 ? left : std::chrono::duration<double>(std::numeric_limits<double>::infinity());
    }
    // Moves the deadline this much earlier, for later work that takes this time and is not interrupted.
    void leave(std::chrono::steady_clock::duration room) { room_ = room; }
    void check() {
        if (passed())
            throw TimeIsUp{};
    }

private:
    static constexpr std::chrono::duration<double> kUnlimited{1e9};
    std::chrono::steady_clock::time_point end_;
    std::chrono::steady_clock::duration room_{0};
    std::size_t rarely_, asked_ = 0;
    std::function<bool()> should_stop_;
    bool passed_ = false;
};

}  // namespace pw

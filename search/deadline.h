// A point in time after which a search stops and answers with what it has.
#pragma once

#include <chrono>
#include <cstddef>

namespace pw {

struct SearchLimits {
    double seconds = 60;
    std::size_t downsets = 1'000'000;  // of an exact search; beyond it only one order of the graph is tried
};

class Deadline {
public:
    explicit Deadline(double seconds)
        : end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                      std::chrono::duration<double>(seconds))) {}
    // Looks at the clock now and then; once true, it stays so.
    bool passed() {
        if (!passed_ && ++asked_ % 4096 == 0)
            passed_ = std::chrono::steady_clock::now() >= end_;
        return passed_;
    }

private:
    std::chrono::steady_clock::time_point end_;
    std::size_t asked_ = 0;
    bool passed_ = false;
};

}  // namespace pw

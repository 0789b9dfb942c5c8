#include "exec/measuring/reference_work.h"

#include "exec/engine/phase_barrier.h"
#include "exec/engine/pin.h"
#include "exec/system/threads.h"
#include "workloads/first_failure.h"
#include "workloads/median.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pw {

namespace {

constexpr int kWidth = 192, kProducts = 6;            // the width of square matrices, and the number of their products
constexpr std::size_t kWords = std::size_t{4} << 20;  // 32 MiB, more than the capacity of the nearer caches

// Keeps the compiler from removing the computation of `value`.
void keep(double value) {
    [[maybe_unused]] static volatile double kept;
    kept = value;
}

void multiply(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c) {
    for (int row = 0; row < kWidth; ++row)
        for (int k = 0; k < kWidth; ++k)
            for (int column = 0; column < kWidth; ++column)
                c[row * kWidth + column] += a[row * kWidth + k] * b[k * kWidth + column];
}

Ns time_of_one(std::vector<double>& memory) {
    const std::vector<float> a(kWidth * kWidth, 1.5F), b(kWidth * kWidth, 0.5F);
    std::vector<float> c(kWidth * kWidth, 0);
    const Ns start = clock_now();
    for (int product = 0; product < kProducts; ++product)
        multiply(a, b, c);
    for (double& word : memory)
        word = word * 0.5 + 1;
    const Ns time = clock_now() - start;
    keep(c[kWidth] + memory[memory.size() / 2]);
    return time;
}

}  // namespace

Ns reference_work_time(const CorePlan& cores) {
    std::vector<Ns> times(cores.cores.size(), 0);
    std::vector<Thread> workers;
    FirstFailure failure;
    const auto work = [&](std::size_t device) {
        if (!cores.shared)
            pin_this_thread(cores.cores[device]);
        std::vector<double> memory(kWords, 1);
        times[device] = time_of_one(memory);
    };
    const auto start_all = [&] {
        for (std::size_t device = 0; device < times.size(); ++device)
            workers.push_back(
                start_thread("the reference work", [&, device] { failure.guard([&] { work(device); }, [] {}); }));
    };
    failure.guard(start_all, [] {});
    for (Thread& worker : workers)
        worker.join();
    failure.rethrow();
    return *std::max_element(times.begin(), times.end());
}

Ns ReferenceWork::median() const { return times.empty() ? 0 : lower_median(times); }

Ns ReferenceWork::spread() const {
    if (times.empty())
        return 0;
    const auto at = [&](double quantile) {
        return value_of_rank(times,
                             static_cast<std::size_t>(std::lround(quantile * static_cast<double>(times.size() - 1))));
    };
    return at(0.9) - at(0.1);
}

}  // namespace pw

#include "exec/measuring/host_link.h"

#include "exec/measuring/stop_watch.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace pw {

namespace {

constexpr Bytes kSmallCopy = 4096, kLargeCopy = 32 << 20;
constexpr int kTimes = 9;

Ns time_of_copy(const Kernels& kernels, const std::byte* from, std::byte* to, Bytes bytes) {
    std::vector<Ns> times;
    for (int time = 0; time < kTimes; ++time) {
        const Mark begun = kernels.mark();
        kernels.copy(from, to, bytes);
        times.push_back(kernels.time_between(begun, kernels.mark()));
        kernels.finish();
    }
    return median_of(std::move(times)).median;
}

}  // namespace

Link measure_host_link(const Kernels& kernels) {
    const std::unique_ptr<Memory> device = kernels.reserve(kLargeCopy, "a copy to the host"),
                                  host = kernels.shared(kLargeCopy);
    kernels.fill(device->data(), 0, kLargeCopy);
    kernels.copy(device->data(), host->data(), kLargeCopy);
    const auto slower = [&](Bytes bytes) {
        return std::max(time_of_copy(kernels, device->data(), host->data(), bytes),
                        time_of_copy(kernels, host->data(), device->data(), bytes));
    };
    const Ns small = slower(kSmallCopy), large = std::max(slower(kLargeCopy), small + 1);
    return {.latency = small,
            .bandwidth = 1e9 * static_cast<double>(kLargeCopy - kSmallCopy) / static_cast<double>(large - small)};
}

}  // namespace pw

// The kernels that are common to all backends that compute on host threads.
#include "exec/engine/arena.h"
#include "exec/engine/machine.h"
#include "exec/engine/mailbox.h"
#include "exec/engine/pin.h"
#include "exec/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace pw {

void HostKernels::fill(std::byte* to, unsigned char value, Bytes bytes) const {
    if (bytes > 0)
        std::memset(to, value, static_cast<std::size_t>(bytes));
}

void HostKernels::copy(const std::byte* from, std::byte* to, Bytes bytes) const {
    if (bytes > 0)
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void HostKernels::sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const {
    constexpr std::size_t kLanes = 16;
    const auto values = [](const std::byte* block) { return reinterpret_cast<const float*>(block); };
    const auto sum_at = [&](std::size_t k, auto count) {
        float sums[kLanes];
        std::copy_n(values(from.front()) + k, std::size_t{count}, sums);
        for (const std::byte* block : from.subspan(1))
            for (std::size_t lane = 0; lane < count; ++lane)
                sums[lane] += values(block)[k + lane];
        std::copy_n(sums, std::size_t{count}, reinterpret_cast<float*>(to) + k);
    };
    auto k = static_cast<std::size_t>(first) / sizeof(float);
    const std::size_t end = k + static_cast<std::size_t>(bytes) / sizeof(float);
    for (; k + kLanes <= end; k += kLanes)
        sum_at(k, std::integral_constant<std::size_t, kLanes>());  // registers instead of copies of any length
    if (k < end)
        sum_at(k, end - k);
}

void HostKernels::clip_factor(std::span<const double> squares, double largest, double* factor) const {
    double sum = 0;
    for (const double square : squares)
        sum += square;
    *factor = std::min(1.0, largest / (std::sqrt(sum) + 1e-6));
}

void HostKernels::scale(const double* factor, std::byte* gradient, Bytes bytes) const {
    if (*factor == 1)
        return;
    const auto times = static_cast<float>(*factor);
    auto* values = reinterpret_cast<float*>(gradient);
    for (std::size_t k = 0; k < static_cast<std::size_t>(bytes) / sizeof(float); ++k)
        values[k] *= times;
}

void HostKernels::sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const {
    constexpr std::size_t kLanes = 16;
    const auto* values = reinterpret_cast<const float*>(gradient);
    const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(float);
    double lanes[kLanes] = {};
    std::size_t k = 0;
    for (; k + kLanes <= count; k += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            lanes[lane] += static_cast<double>(values[k + lane]) * static_cast<double>(values[k + lane]);
    *sum = 0;
    for (const double lane : lanes)
        *sum += lane;
    for (; k < count; ++k)
        *sum += static_cast<double>(values[k]) * static_cast<double>(values[k]);
}

std::unique_ptr<Memory> HostKernels::reserve(Bytes bytes, const std::string& whose) const {
    return host_memory(bytes, whose, true);
}

std::unique_ptr<Memory> HostKernels::shared(Bytes bytes) const { return host_memory(bytes, "shared memory", true); }

std::string HostKernels::machine() const { return machine_name(); }

Mark HostKernels::mark() const { return clock_now(); }

}  // namespace pw

#include "sim/samples.h"

#include "workloads/error.h"

#include <boost/math/distributions/normal.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace pw {

Jitter lognormal_jitter(double sigma) {
    const boost::math::normal normal;
    Jitter jitter;
    for (std::size_t k = 0; k < Jitter::kQuantiles; ++k) {
        const double part = (static_cast<double>(k) + 0.5) / Jitter::kQuantiles;
        jitter.deviations[k] =
            static_cast<float>(std::exp(sigma * boost::math::quantile(normal, part) - sigma * sigma / 2) - 1);
    }
    return jitter;
}

Jitter read_jitter(std::string_view text) {
    constexpr std::string_view kLognormal = "lognormal:";
    double sigma = 0;
    if (text.starts_with(kLognormal)) {
        const char* begin = text.data() + kLognormal.size();
        const auto [end, error] = std::from_chars(begin, text.data() + text.size(), sigma);
        if (error == std::errc() && end == text.data() + text.size() && sigma >= 0 && sigma <= 1)
            return lognormal_jitter(sigma);
    }
    fail(
        "--jitter: '{}' is no jitter\n  help: write lognormal:SIGMA with the standard deviation of the logarithm of "
        "a task's time, from 0 to 1, such as lognormal:0.05",
        text);
}

Ns quantile_of(const Samples& samples, double part) {
    std::vector<Ns> times = samples.step_times;
    const auto rank = static_cast<std::ptrdiff_t>(std::ceil(part * static_cast<double>(times.size())));
    const auto at = times.begin() + std::clamp<std::ptrdiff_t>(rank - 1, 0, std::ssize(times) - 1);
    std::nth_element(times.begin(), at, times.end());
    return *at;
}

}  // namespace pw

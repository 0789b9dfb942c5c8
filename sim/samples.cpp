#include "sim/samples.h"

#include "workloads/error.h"

#include <boost/math/distributions/normal.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace pw {

namespace {

// Returns the jitter with these deviations at the quantiles of a standard normal number.
template <class At>
Jitter jitter_of(At at) {
    const boost::math::normal normal;
    Jitter jitter;
    for (std::size_t k = 0; k < Jitter::kQuantiles; ++k) {
        const double part = (static_cast<double>(k) + 0.5) / Jitter::kQuantiles;
        jitter.deviations[k] = static_cast<float>(at(boost::math::quantile(normal, part)));
    }
    return jitter;
}

}  // namespace

double Jitter::scale(Op op, int stage) const {
    if (spreads.empty())
        return 1;
    const StageSpread& spread = spreads[static_cast<std::size_t>(stage)];
    switch (op) {
        case Op::Forward:
            return spread.forward;
        case Op::Backward:
            return spread.backward;
        case Op::BackwardInput:
            return spread.backward_input;
        case Op::BackwardWeight:
            return spread.backward_weight;
        case Op::Recompute:
            return spread.recompute;
        case Op::Update:
        case Op::SumGradients:
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
            return 0;
    }
    return 0;
}

Jitter lognormal_jitter(double sigma) {
    return jitter_of([&](double normal) { return std::exp(sigma * normal - sigma * sigma / 2) - 1; });
}

Jitter normal_jitter(std::vector<StageSpread> spreads) {
    Jitter jitter = jitter_of([](double normal) { return normal; });
    jitter.spreads = std::move(spreads);
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
        "--jitter: '{}' is no jitter\n  help: write profile, or lognormal:SIGMA with the standard deviation of the "
        "logarithm of "
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

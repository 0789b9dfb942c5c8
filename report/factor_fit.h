// A least-squares fit of a few factors to measured steps, in logarithms: how many times as long as predicted the parts
// of a step take.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace pw {

// Whether measured steps set a factor. A factor that they do not set stays 1.
enum class FactorVerdict : std::uint8_t {
    Set,
    AtBound,      // set to kLeastFitted or kMostFitted
    NoEffect,     // no step changes with it
    LikeOthers,   // the steps change with it as with the factors that are set
    TooFewSteps,  // as many factors are set as there are steps
};
std::string_view name_of(FactorVerdict verdict);  // in words of a table

inline constexpr double kLeastFitted = 0.25, kMostFitted = 4;
// Before anything is measured, a factor is within 20 % of 1 with a probability of 80 %.
inline constexpr double kPriorBand = 1.2, kPriorDeviation = 0.14226;  // ln 1.2 / 1.2816
// By how much steps differ that the factors make equal: before anything is measured, each of these deviations is
// equally likely.
inline constexpr double kScatters[] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2};
// A factor is set if a change of kPriorBand changes the steps, beyond what the factors that are set can do, by
// kLeastSeen in the root mean square: the least scatter.
inline constexpr double kLeastSeen = kScatters[0];

struct FactorFit {
    double scatter = 0;  // the deviation of the steps that the steps themselves tell
    std::vector<double> factors;
    std::vector<FactorVerdict> verdicts;  // by factor
};

// Returns the logarithms of predicted over measured of all steps under these factors.
using LogErrors = std::function<std::vector<double>(const std::vector<double>& factors)>;

// Fits `count` factors. The first factor is always set. A further factor is set while there are more steps than
// factors. The next factor is the factor that changes the steps most, beyond what the earlier factors can do. The more
// the errors of the steps differ, the nearer to 1 the factors stay: the fit has the largest posterior density under the
// deviations above (C. M. Bishop, "Pattern Recognition and Machine Learning", 2006, sections 3.3 and 3.4), with the
// variance of the steps that the errors tell.
FactorFit fit_factors(std::size_t count, const LogErrors& errors);

}  // namespace pw

// Fits of factors to steps that are sums of parts, against a search on a grid.
#include "report/factor_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace pw {
namespace {

// A step as a sum of parts, each a factor's, and how long it was measured.
struct SummedStep {
    std::vector<double> parts;
    double measured;
};

std::vector<double> errors_of(const std::vector<SummedStep>& steps, const std::vector<double>& factors) {
    std::vector<double> errors;
    for (const SummedStep& step : steps) {
        double predicted = 0;
        for (std::size_t part = 0; part < factors.size(); ++part)
            predicted += factors[part] * step.parts[part];
        errors.push_back(std::log(predicted / step.measured));
    }
    return errors;
}

FactorFit fit(const std::vector<SummedStep>& steps) {
    return fit_factors(steps.front().parts.size(),
                       [&](const std::vector<double>& factors) { return errors_of(steps, factors); });
}

// The deviations of the steps and of the factors, in squares: the least is the most likely.
double squares(const std::vector<SummedStep>& steps, const std::vector<double>& factors, double scatter) {
    double sum = 0;
    for (const double error : errors_of(steps, factors))
        sum += error * error / (scatter * scatter);
    for (const double factor : factors)
        sum += std::pow(std::log(factor) * 1.2816 / std::log(1.2), 2);
    return sum;
}

using Verdicts = std::vector<FactorVerdict>;

TEST(FactorFit, IsTheLeastOfAGrid) {
    const std::vector<SummedStep> steps = {
        {{0.8, 0.2}, 1.30}, {{0.5, 0.5}, 1.12}, {{0.2, 0.8}, 0.97}, {{0.6, 0.4}, 1.25}};
    const FactorFit found = fit(steps);
    const double least = squares(steps, found.factors, found.scatter);
    for (double first = 0.7; first < 1.6; first += 0.002)
        for (double second = 0.7; second < 1.6; second += 0.002)
            ASSERT_GE(squares(steps, {first, second}, found.scatter), least - 1e-6) << first << ' ' << second;
    EXPECT_EQ(found.verdicts, (Verdicts{FactorVerdict::Set, FactorVerdict::Set}));
}

TEST(FactorFit, FindsFactorsThatMadeTheSteps) {
    const double first = 1.15, second = 0.85, third = 1.2;
    std::vector<SummedStep> steps = {{{8, 1, 1}, 0}, {{5, 5, 0}, 0}, {{4, 1, 5}, 0}, {{2, 6, 2}, 0}, {{3, 3, 3}, 0}};
    for (SummedStep& step : steps)
        step.measured = first * step.parts[0] + second * step.parts[1] + third * step.parts[2];
    const FactorFit found = fit(steps);
    EXPECT_NEAR(found.factors[0], first, 0.01);
    EXPECT_NEAR(found.factors[1], second, 0.01);
    EXPECT_NEAR(found.factors[2], third, 0.01);
    EXPECT_LT(found.scatter, 0.02);
}

// The scatter of three equal steps that were measured 10 % apart is what the logarithms deviate by, and nothing but the
// first factor moves.
TEST(FactorFit, TellsTheScatterOfTheSteps) {
    const FactorFit found = fit({{{1, 0}, 1.1}, {{1, 0}, 1}, {{1, 0}, 1 / 1.1}});
    EXPECT_NEAR(found.factors[0], 1, 1e-4);
    EXPECT_EQ(found.factors[1], 1);
    EXPECT_GT(found.scatter, 0.07);
    EXPECT_LT(found.scatter, 0.14);
}

TEST(FactorFit, SaysWhichFactorsTheStepsDoNotSet) {
    EXPECT_EQ(fit({{{5, 5, 0}, 11}}).verdicts,
              (Verdicts{FactorVerdict::Set, FactorVerdict::TooFewSteps, FactorVerdict::NoEffect}));
    EXPECT_EQ(fit({{{5, 5}, 11}, {{6, 6}, 13}}).verdicts, (Verdicts{FactorVerdict::Set, FactorVerdict::LikeOthers}));
    EXPECT_EQ(fit({{{8, 1, 4}, 14}, {{5, 8, 1}, 15}}).verdicts,
              (Verdicts{FactorVerdict::Set, FactorVerdict::Set, FactorVerdict::TooFewSteps}));
}

// A step that is measured a hundred times as long as predicted is a mistake.
TEST(FactorFit, StopsAtItsBounds) {
    const FactorFit found = fit({{{1}, 100}});
    EXPECT_EQ(found.verdicts, Verdicts{FactorVerdict::AtBound});
    EXPECT_NEAR(found.factors[0], kMostFitted, 1e-9);
}

}  // namespace
}  // namespace pw

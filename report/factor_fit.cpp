#include "report/factor_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace pw {

namespace {

using Column = std::vector<double>;

constexpr double kStep = 0.02;  // of a logarithm, for differences

double dot(const Column& a, const Column& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

double root_mean_square(const Column& column) {
    return std::sqrt(dot(column, column) / static_cast<double>(column.size()));
}

std::vector<double> factors_of(const Column& logs) {
    std::vector<double> factors;
    for (const double value : logs)
        factors.push_back(std::exp(value));
    return factors;
}

// Returns how the errors change with the logarithm of a factor.
Column slope_of(std::size_t factor, Column logs, const Column& errors_here, const LogErrors& errors) {
    logs[factor] += kStep;
    Column slope = errors(factors_of(logs));
    for (std::size_t step = 0; step < slope.size(); ++step)
        slope[step] = (slope[step] - errors_here[step]) / kStep;
    return slope;
}

// Takes from a column what is a multiple of a column of length 1.
void project_out(Column& column, const Column& unit) {
    const double part = dot(column, unit);
    for (std::size_t step = 0; step < column.size(); ++step)
        column[step] -= part * unit[step];
}

// The factors that the steps set, in the order in which they were chosen, and why the rest stay 1.
struct Chosen {
    std::vector<std::size_t> set;
    std::vector<FactorVerdict> verdicts;
};

Chosen choose_factors(const std::vector<Column>& slopes) {
    const std::size_t count = slopes.size(), steps = slopes.front().size();
    const double seen = kLeastSeen / std::log(kPriorBand);
    Chosen chosen{{}, std::vector<FactorVerdict>(count, FactorVerdict::TooFewSteps)};
    std::vector<Column> left = slopes;
    for (std::size_t next = 0; chosen.set.size() < steps;) {
        chosen.set.push_back(next);
        chosen.verdicts[next] = FactorVerdict::Set;
        Column unit = left[next];
        const double length = std::sqrt(dot(unit, unit));
        for (double& value : unit)
            value /= std::max(length, 1e-12);
        next = count;
        double most = seen;
        for (std::size_t factor = 0; factor < count; ++factor) {
            if (chosen.verdicts[factor] == FactorVerdict::Set)
                continue;
            project_out(left[factor], unit);
            if (const double size = root_mean_square(left[factor]); size >= most) {
                most = size;
                next = factor;
            }
        }
        if (next == count)
            break;
    }
    for (std::size_t factor = 0; factor < count; ++factor)
        if (chosen.verdicts[factor] != FactorVerdict::Set)
            chosen.verdicts[factor] = root_mean_square(slopes[factor]) < seen ? FactorVerdict::NoEffect
                                      : chosen.set.size() < steps             ? FactorVerdict::LikeOthers
                                                                              : FactorVerdict::TooFewSteps;
    return chosen;
}

// Solves a symmetric positive definite system of a few rows.
Column solved(std::vector<Column> rows, Column right) {
    const std::size_t size = right.size();
    for (std::size_t pivot = 0; pivot < size; ++pivot)
        for (std::size_t row = pivot + 1; row < size; ++row) {
            const double part = rows[row][pivot] / rows[pivot][pivot];
            for (std::size_t column = pivot; column < size; ++column)
                rows[row][column] -= part * rows[pivot][column];
            right[row] -= part * right[pivot];
        }
    for (std::size_t pivot = size; pivot-- > 0;) {
        for (std::size_t column = pivot + 1; column < size; ++column)
            right[pivot] -= rows[pivot][column] * right[column];
        right[pivot] /= rows[pivot][pivot];
    }
    return right;
}

constexpr double kPriorVariance = kPriorDeviation * kPriorDeviation;  // of the logarithm of a factor

// Returns the logarithm of the probability density of the errors, up to a constant, if steps scatter by `scatter`.
// `set` are the factors that are set. Their covariance is a matrix that Cholesky's method takes apart.
double evidence_of(double scatter, const std::vector<std::size_t>& set, const std::vector<Column>& slopes,
                   const Column& errors_here) {
    const std::size_t steps = errors_here.size();
    std::vector<Column> root(steps, Column(steps));
    Column white(steps);
    double evidence = 0;
    for (std::size_t row = 0; row < steps; ++row) {
        for (std::size_t column = 0; column <= row; ++column) {
            double value = row == column ? scatter * scatter : 0;
            for (const std::size_t factor : set)
                value += kPriorVariance * slopes[factor][row] * slopes[factor][column];
            for (std::size_t k = 0; k < column; ++k)
                value -= root[row][k] * root[column][k];
            root[row][column] = row == column ? std::sqrt(std::max(value, 1e-12)) : value / root[column][column];
        }
        white[row] = errors_here[row];
        for (std::size_t k = 0; k < row; ++k)
            white[row] -= root[row][k] * white[k];
        white[row] /= root[row][row];
        evidence -= white[row] * white[row] / 2 + std::log(root[row][row]);
    }
    return evidence;
}

// Returns the square root of the mean variance of the steps, by how likely each of kScatters makes the errors.
double scatter_of(const std::vector<std::size_t>& set, const std::vector<Column>& slopes, const Column& errors_here) {
    Column evidences;
    for (const double scatter : kScatters)
        evidences.push_back(evidence_of(scatter, set, slopes, errors_here));
    const double most = *std::ranges::max_element(evidences);
    double weights = 0, variances = 0;
    for (std::size_t k = 0; k < evidences.size(); ++k) {
        const double weight = std::exp(evidences[k] - most);
        weights += weight;
        variances += weight * kScatters[k] * kScatters[k];
    }
    return std::sqrt(variances / weights);
}

// Returns the changes of the logarithms of `free` factors that make the sum of squares least, by the slopes here.
Column gauss_newton_step(const std::vector<std::size_t>& free, const std::vector<Column>& slopes,
                         const Column& errors_here, const Column& logs, double prior) {
    std::vector<Column> rows(free.size(), Column(free.size()));
    Column right(free.size());
    for (std::size_t row = 0; row < free.size(); ++row) {
        for (std::size_t column = 0; column < free.size(); ++column)
            rows[row][column] = dot(slopes[free[row]], slopes[free[column]]);
        rows[row][row] += prior;
        right[row] = -dot(slopes[free[row]], errors_here) - prior * logs[free[row]];
    }
    return solved(std::move(rows), std::move(right));
}

bool is_at_bound(double value) {
    return value <= std::log(kLeastFitted) + 1e-9 || value >= std::log(kMostFitted) - 1e-9;
}

// Moves the factors until they change no more. `prior` is the weight of their distances from 1. Factors at a bound stay
// there. Halves a step that makes the fit worse, since the slopes change where another part of a step becomes the
// longest.
void descend(const std::vector<std::size_t>& set, std::vector<Column> slopes, double prior, Column& logs,
             Column errors_here, const LogErrors& errors) {
    constexpr int kMostSteps = 12, kMostHalvings = 5;
    constexpr double kSmall = 1e-5;
    const auto squares_of = [&](const Column& of_steps, const Column& of_factors) {
        return dot(of_steps, of_steps) + prior * dot(of_factors, of_factors);
    };
    for (int iteration = 0; iteration < kMostSteps; ++iteration) {
        std::vector<std::size_t> free;
        for (const std::size_t factor : set)
            if (!is_at_bound(logs[factor]))
                free.push_back(factor);
        if (free.empty())
            return;
        Column step = gauss_newton_step(free, slopes, errors_here, logs, prior);
        Column moved, errors_moved;
        for (int halving = 0; halving <= kMostHalvings; ++halving) {
            moved = logs;
            for (std::size_t k = 0; k < free.size(); ++k)
                moved[free[k]] = std::clamp(logs[free[k]] + step[k], std::log(kLeastFitted), std::log(kMostFitted));
            errors_moved = errors(factors_of(moved));
            if (squares_of(errors_moved, moved) <= squares_of(errors_here, logs))
                break;
            for (double& change : step)
                change /= 2;
        }
        if (squares_of(errors_moved, moved) > squares_of(errors_here, logs))
            return;
        const bool small = std::ranges::all_of(step, [](double change) { return std::abs(change) < kSmall; });
        logs = std::move(moved);
        errors_here = std::move(errors_moved);
        if (small)
            return;
        for (const std::size_t factor : set)
            slopes[factor] = slope_of(factor, logs, errors_here, errors);
    }
}

}  // namespace

std::string_view name_of(FactorVerdict verdict) {
    switch (verdict) {
        case FactorVerdict::Set:
            return "set by the runs";
        case FactorVerdict::AtBound:
            return "set by the runs, at its bound";
        case FactorVerdict::NoEffect:
            return "not determined: hardly acts on the runs";
        case FactorVerdict::LikeOthers:
            return "not determined: acts on the runs as the other factors do";
        case FactorVerdict::TooFewSteps:
            return "not determined: takes further runs";
    }
    return {};
}

FactorFit fit_factors(std::size_t count, const LogErrors& errors) {
    Column logs(count, 0.0);
    const Column errors_before = errors(factors_of(logs));
    std::vector<Column> slopes;
    for (std::size_t factor = 0; factor < count; ++factor)
        slopes.push_back(slope_of(factor, logs, errors_before, errors));
    Chosen chosen = choose_factors(slopes);
    const double scatter = scatter_of(chosen.set, slopes, errors_before);
    descend(chosen.set, std::move(slopes), scatter * scatter / kPriorVariance, logs, errors_before, errors);
    for (const std::size_t factor : chosen.set)
        if (is_at_bound(logs[factor]))
            chosen.verdicts[factor] = FactorVerdict::AtBound;
    return {scatter, factors_of(logs), std::move(chosen.verdicts)};
}

}  // namespace pw

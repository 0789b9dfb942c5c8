// Central differences of a layer's output in double: of <p, output> for a random p, or of the loss itself.
#pragma once

#include "tests/support/layer_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

namespace pw {

constexpr double kDifferenceStep = 1e-6;

inline std::span<double> doubles(const Block& block) {
    return {reinterpret_cast<double*>(block.get()), static_cast<std::size_t>(block.size()) / sizeof(double)};
}

template <class Function>
double central_difference(double& place, Function value) {
    const double before = place;
    place = before + kDifferenceStep;
    const double above = value();
    place = before - kDifferenceStep;
    const double below = value();
    place = before;
    return (above - below) / (2 * kDifferenceStep);
}

inline double functional(LayerRig& rig) {
    rig.forward();
    if (is_loss(rig.layer.kind))
        return rig.loss() * rig.loss_scale;
    double sum = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rig.output_elements()); ++i)
        sum += doubles(rig.output)[i] * doubles(rig.output_gradient)[i];
    return sum;
}

inline void expect_derivative(LayerRig& rig, const Block& place, const Block& gradient, std::int64_t count,
                              const std::string& what) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const double expected = central_difference(doubles(place)[i], [&] { return functional(rig); });
        ASSERT_NEAR(doubles(gradient)[i], expected, 1e-7 * (1 + std::abs(expected))) << what << " " << i;
    }
}

}  // namespace pw

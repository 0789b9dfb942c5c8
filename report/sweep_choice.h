// What the chart of a sweep shows: its keys as numbers, the numbers of its points, and which points are drawn.
#pragma once

#include "report/sweep.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// A number of every point.
struct SweepMetric {
    const char *name, *label;
    Quantity quantity;
    double factor;  // of what is drawn
    bool more_is_better;
    double (*of)(const Report& report);
};
double number_of(const SweepMetric& metric, const SweepPoint& point);  // NAN where there is none
Axis axis_of(const SweepMetric& metric, const Sweep& sweep);
std::string print_number(const SweepMetric& metric, double number, Bytes limit);  // "12.34 ms", "278.7"

// The values of a key as numbers, in the units of the quantity.
struct KeyNumbers {
    Quantity quantity;
    std::vector<double> values;
};
std::optional<KeyNumbers> numbers_of(const SweepAxis& axis);

struct SweepChoice {
    std::size_t x = 0;                      // a key
    const SweepMetric* x_metric = nullptr;  // instead of the key
    const SweepMetric* metric = nullptr;    // along y, or in the cells of a map
    bool as_map = false;
};
// Throws Error (BadInput) as check_drawable() does. `has_tokens`: whether all points have tokens per second.
// `counts_tokens`: whether tokens are shown unless the view says otherwise.
SweepChoice sweep_choice(const std::vector<SweepAxis>& axes, const SweepView& view, bool has_tokens,
                         bool counts_tokens);

}  // namespace pw

// The middle of some values, which must not be empty. Three rules for an even number of them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace pw {

// Returns the value at index `rank` of the sorted values.
template <class Value>
Value value_of_rank(std::vector<Value> values, std::size_t rank) {
    assert(rank < values.size());
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

// Returns one of the values: the smaller of two in the middle.
template <class Value>
Value lower_median(std::vector<Value> values) {
    const std::size_t middle = (values.size() - 1) / 2;
    return value_of_rank(std::move(values), middle);
}

// Returns one of the values: the larger of two in the middle.
template <class Value>
Value upper_median(std::vector<Value> values) {
    const std::size_t middle = values.size() / 2;
    return value_of_rank(std::move(values), middle);
}

// Returns the value half way between the two in the middle.
inline double mean_median(const std::vector<double>& values) {
    const double upper = upper_median(values);
    return values.size() % 2 == 1 ? upper : (lower_median(values) + upper) / 2;
}

}  // namespace pw

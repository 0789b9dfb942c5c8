// Which layers of a stage to recompute: the cheapest set that frees the memory that is missing (a 0/1 knapsack).
#pragma once

#include <vector>

namespace pw {

struct Saving {
    double cost = 0;   // not negative
    double bytes = 0;  // bytes that recomputing frees, positive
    int layer = 0;
};

class RecomputeChoice {
public:
    explicit RecomputeChoice(std::vector<Saving> savings);

    double most_bytes() const { return bytes_.back(); }
    // Returns the least cost if layers could be recomputed in part: a lower bound. Needs `bytes` <= most_bytes().
    double fractional(double bytes) const;
    // Takes layers, cheapest per byte first, until they free enough: an upper bound.
    std::vector<int> greedy(double bytes) const;
    // Returns the layers of the cheapest set that frees `bytes` or more.
    std::vector<int> cheapest(double bytes) const;

private:
    double fractional_from(std::size_t first, double bytes) const;

    std::vector<Saving> savings_;        // cheapest per byte first
    std::vector<double> costs_, bytes_;  // sums over the first i savings
};

}  // namespace pw

// Every way to divide the blocks of a transformer among stages.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace pw {

// Calls `visit` with each way to divide blocks among stages, of which some may have none.
inline void for_each_division(int blocks, int stages, const std::function<void(const std::vector<int>&)>& visit) {
    std::vector<int> division(static_cast<std::size_t>(stages), 0);
    const std::function<void(int, int)> divide = [&](int stage, int rest) {
        if (stage + 1 == stages) {
            division.back() = rest;
            return visit(division);
        }
        for (int number = 0; number <= rest; ++number) {
            division[static_cast<std::size_t>(stage)] = number;
            divide(stage + 1, rest - number);
        }
    };
    divide(0, blocks);
}

}  // namespace pw

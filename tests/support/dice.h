// Random numbers of the tests that try many small instances: the same for the same seed.
#pragma once

#include <random>

namespace pw {

using Random = std::mt19937;

inline int pick(Random& random, int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

struct Dice {
    Random random;
    int upto(int most) { return std::uniform_int_distribution<int>(0, most)(random); }
    bool one_in(int count) { return upto(count - 1) == 0; }
};

}  // namespace pw

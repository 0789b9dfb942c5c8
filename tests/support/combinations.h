// All ways to choose one of several things for each of several places.
#pragma once

#include <cstddef>
#include <vector>

namespace pw {

// Calls visit with the numbers of the things by place. There is at least one thing.
template <class Visit>
void for_each_combination(std::size_t places, std::size_t things, Visit visit) {
    std::vector<std::size_t> at(places, 0);
    for (;;) {
        visit(at);
        std::size_t place = 0;
        while (place < places && ++at[place] == things)
            at[place++] = 0;
        if (place == places)
            return;
    }
}

}  // namespace pw

// The families of a search: choices that differ only in their devices, where there are too many to list all choices.
#pragma once

#include "search/plans/choice_list.h"
#include "search/plans/searched_choices.h"

#include <vector>

namespace pw {

// The choices of a schedule, sizes and stages of which not all are listed.
struct Family {
    Choices::Partial partial;
    Ns bound = 0;  // of every way
};

// Bounds the families with open members, and adds to the families that share out devices a choice that shares devices
// by work. Returns the indices of the added choices.
std::vector<std::size_t> add_balanced(std::vector<Family>& families, SearchedChoices& choices,
                                      const std::vector<DeviceConfig>& devices, int threads, const Deadline& deadline);

// Returns a lower bound on the step time of all choices of the family.
Ns bound_of(const Family& family, const SearchedChoices& choices);

}  // namespace pw

// Which hosts have which stages: orders of the hosts of a cluster whose hosts differ.
#pragma once

#include "job/setup/search_setup.h"

#include <vector>

namespace pw {

// Hosts by number, in the order in which stages are placed on them. Hosts that are not listed stay idle.
struct HostOrder {
    std::vector<int> hosts;
    Ns least = 0;  // no step on these hosts is shorter, whatever the order
};

// Returns the orders to search besides the file's order: hosts that are alike follow one another, in every order of
// their kinds, and some or all of each kind are used. The order with the smallest bound comes first. Empty if all hosts
// are alike.
std::vector<HostOrder> host_orders(const SearchSetup& setup);

}  // namespace pw

// The check of every lower bound that is printed next to a value that was reached.
#pragma once

#include "workloads/units.h"

#include <string_view>

namespace pw {

// Throws Error (RunFailed), an internal error, if a lower bound of `what` is above a value of it that was reached: one
// of the two is wrong, and nothing is proven.
void check_lower_bound(Ns bound, Ns reached, std::string_view what);
// The same for values whose last digits may differ, since they are added in another order.
void check_lower_bound(double bound, double reached, std::string_view what);

}  // namespace pw

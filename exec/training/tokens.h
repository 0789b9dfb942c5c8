// Token numbers are stored as floats, like all data of a batch.
#pragma once

#include <cassert>
#include <cstdint>

namespace pw {

// Returns the token number in `value`. Data sets have only tokens of the vocabulary; for any other value it returns
// 0, so that no access is outside a table.
template <class Real>
std::int64_t token_in(Real value, int vocabulary) {
    const bool known = value >= 0 && value < static_cast<Real>(vocabulary);
    assert(known);
    return known ? static_cast<std::int64_t>(value) : 0;
}

}  // namespace pw

// Token numbers travel as floats: data batches hold nothing else.
#pragma once

#include <cassert>
#include <cstdint>

namespace pw {

// Returns the token number in `value`. Data sets keep their tokens within the vocabulary; whatever comes, no table is
// read or written outside.
template <class Real>
std::int64_t token_in(Real value, int vocabulary) {
    const bool known = value >= 0 && value < static_cast<Real>(vocabulary);
    assert(known);
    return known ? static_cast<std::int64_t>(value) : 0;
}

}  // namespace pw

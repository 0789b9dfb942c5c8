// How much a test tries: a part of all cases, a smaller one under sanitizers, which slow it down; with
// PIPEWRIGHT_SOAK=1 all of them.
#pragma once

#include <cstdlib>

namespace pw {

#ifdef PIPEWRIGHT_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

inline bool soaks() { return std::getenv("PIPEWRIGHT_SOAK") != nullptr; }

// Rounds of a test with random input that usually tries `usual`.
inline int rounds(int usual) { return soaks() ? 10 * usual : kSanitized ? usual / 5 : usual; }

// Picks one case in `step` of nested loops, all of them with PIPEWRIGHT_SOAK=1. If `step` has no divisor in common with
// the lengths of the inner loops, each of their values is picked.
class OneIn {
public:
    explicit OneIn(int step) : step_(step) {}
    bool picks() { return soaks() || case_++ % step_ == 0; }

private:
    int step_, case_ = 0;
};

}  // namespace pw

// A target of the fuzzer: it takes any bytes and returns, or throws an Error that blames the input.
#pragma once

#include <string>

namespace pw {

// From a few bytes, overrides of a config with extreme numbers, simulated.
void fuzz_simulate(const std::string& bytes);

}  // namespace pw

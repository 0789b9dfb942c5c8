// A target of the fuzzer takes any bytes, and either returns or throws an Error about the input.
#pragma once

#include <string>

namespace pw {

// Simulates a config with extreme numbers, which a few bytes select.
void fuzz_simulate(const std::string& bytes);

}  // namespace pw

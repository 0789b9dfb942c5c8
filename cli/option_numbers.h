// Checks of numbers on the command line, with good error messages.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace pw {

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator seconds_above_zero();

}  // namespace pw

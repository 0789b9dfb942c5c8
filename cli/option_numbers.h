// Checks of numbers on the command line, with good error messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class Validator;
}

namespace pw {

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
// A list of such numbers, "4,8", and its numbers.
CLI::Validator whole_numbers(std::int64_t least, std::int64_t most);
std::vector<int> numbers_in(const std::string& list);
CLI::Validator seconds_above_zero();

}  // namespace pw

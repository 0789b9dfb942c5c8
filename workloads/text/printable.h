// Text of files, fit for a terminal: names and values stand in messages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pw {

// Whether a byte is one of a UTF-8 sequence, but not its first.
inline bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the UTF-8 sequence at `at`; 0 when it is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

// What a terminal would act on is written out, as \x1b: control characters but line breaks and tabs, and bytes that
// are no UTF-8.
std::string escaped_controls(std::string_view text);

// At most so many bytes of it, and how many there are.
std::string shortened(std::string_view text, std::size_t most);

// Every line of it shortened.
std::string shortened_lines(std::string_view text, std::size_t most);

}  // namespace pw

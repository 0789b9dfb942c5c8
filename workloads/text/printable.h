// Text of files, fit for a terminal: names and values stand in messages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pw {

// Returns whether a byte is one of a UTF-8 sequence, but not its first.
inline bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the length of the UTF-8 sequence at `at`, or 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

// Returns the text with all that a terminal would act on written out, as \x1b: control characters but line breaks and
// tabs, and bytes that are no UTF-8.
std::string escaped_controls(std::string_view text);
// Returns the same for one line or one cell of a table: line breaks and tabs are written out, too.
std::string escaped_line(std::string_view text);

// Returns at most so many bytes of the text, and says how many there are.
std::string shortened(std::string_view text, std::size_t most);

// Returns the text with every line shortened.
std::string shortened_lines(std::string_view text, std::size_t most);

}  // namespace pw

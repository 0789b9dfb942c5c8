// Text of files, made safe for a terminal: names and values appear in messages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pw {

// Returns whether a byte belongs to a UTF-8 sequence but is not its first.
inline bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the length of the UTF-8 sequence at `at`, or 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

// Returns the text with everything that a terminal would act on written out, as \x1b: control characters except line
// breaks and tabs, characters that are invisible or change the direction of text, and bytes that are not UTF-8.
std::string escaped_controls(std::string_view text);
// Returns the same for one line or one cell of a table: line breaks and tabs are written out, too.
std::string escaped_line(std::string_view text);

// Returns at most `most` bytes of the text, and their full number.
std::string shortened(std::string_view text, std::size_t most);

// Returns the text with every line shortened.
std::string shortened_lines(std::string_view text, std::size_t most);

}  // namespace pw

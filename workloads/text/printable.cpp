#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {
namespace {

bool is_break(char character) { return character == '\n' || character == '\t'; }

bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 2)  // U+0080 to U+009F: ESC and a letter in one
        return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
    return character.size() == 1 && (first < 0x20 || first == 0x7F);
}

// The first and the last of characters that are invisible, or that change the order in which characters are shown. Two
// names, or two lines, could look alike.
struct Unseen {
    std::string_view first, last;  // of one length
};
constexpr Unseen kUnseen[] = {
    {"\u00AD", "\u00AD"},          // soft hyphen
    {"\u061C", "\u061C"},          // Arabic letter mark
    {"\u180E", "\u180E"},          // Mongolian vowel separator
    {"\u200B", "\u200F"},          // zero width, marks of direction
    {"\u2028", "\u202E"},          // separators of lines and paragraphs, embeddings, overrides
    {"\u2060", "\u206F"},          // word joiner, invisible operators, isolates
    {"\uFEFF", "\uFEFF"},          // zero width no-break space
    {"\uFFF9", "\uFFFB"},          // annotations
    {"\U000E0000", "\U000E0FFF"},  // tags
};

bool is_unseen(std::string_view character) {
    return std::ranges::any_of(kUnseen, [&](const Unseen& range) {
        return character.size() == range.first.size() && range.first <= character && character <= range.last;
    });
}

std::string escaped(std::string_view text, bool breaks) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = utf8_length(text, at);
        const std::string_view character = text.substr(at, std::max<std::size_t>(length, 1));
        if (length == 0 || is_unseen(character) || (is_control(character) && (breaks || !is_break(character[0]))))
            for (const char byte : character)
                result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        else
            result += character;
        at += character.size();
    }
    return result;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0 || at + length > text.size())
        return 0;
    for (std::size_t i = 1; i < length; ++i)
        if (!continues_character(text[at + i]))
            return 0;
    return length;
}

std::string escaped_controls(std::string_view text) { return escaped(text, false); }

std::string escaped_line(std::string_view text) { return escaped(text, true); }

std::string shortened(std::string_view text, std::size_t most) {
    if (text.size() <= most)
        return std::string(text);
    std::size_t end = most;
    while (end > 0 && continues_character(text[end]))
        --end;
    return fmt::format("{}... ({} bytes)", text.substr(0, end), text.size());
}

std::string shortened_lines(std::string_view text, std::size_t most) {
    std::string result;
    for (;;) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        result += shortened(text.substr(0, end), most);
        if (end == text.size())
            return result;
        result += '\n';
        text.remove_prefix(end + 1);
    }
}

}  // namespace pw

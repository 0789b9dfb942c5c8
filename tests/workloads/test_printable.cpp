// The text of a file reaches a terminal as text, never as commands.
#include "workloads/text/printable.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(EscapedControls, KeepText) {
    for (const char* text : {"", "plain", "two\nlines\tand a tab", "µ 8 € 𝄞", "\u00a0"})
        EXPECT_EQ(escaped_controls(text), text);
}

TEST(EscapedControls, WriteOutWhatATerminalActsOn) {
    EXPECT_EQ(escaped_controls("\x1b[31mred\x07\x7f\r"), "\\x1b[31mred\\x07\\x7f\\x0d");
    EXPECT_EQ(escaped_controls(std::string_view("a\0b", 3)), "a\\x00b");
    EXPECT_EQ(escaped_controls("\u009b31m \u0085"), "\\xc2\\x9b31m \\xc2\\x85");
}

// A name must not look like another, nor change the order of what follows it.
TEST(EscapedControls, WriteOutWhatIsNotSeen) {
    EXPECT_EQ(escaped_controls("a\u202eb \u2028\u200b\u00ad\ufeff\U000e0041"),
              "a\\xe2\\x80\\xaeb \\xe2\\x80\\xa8\\xe2\\x80\\x8b\\xc2\\xad\\xef\\xbb\\xbf\\xf3\\xa0\\x81\\x81");
    for (const char* seen : {"\u200a", "\u2010", "\u2027", "\u202f", "\u2070", "\ufff8", "\U0001F600"})
        EXPECT_EQ(escaped_controls(seen), seen);
}

TEST(EscapedControls, WriteOutWhatIsNoText) {
    EXPECT_EQ(escaped_controls("\x9b"
                               "31m \xff \xc3"),
              "\\x9b31m \\xff \\xc3");
    EXPECT_EQ(escaped_controls("\xe2\x82 x"), "\\xe2\\x82 x");
}

TEST(EscapedLine, HasNoBreaks) {
    EXPECT_EQ(escaped_line("two\nlines\tand\r\x1b µ"), "two\\x0alines\\x09and\\x0d\\x1b µ");
}

TEST(Shortened, EndsBetweenCharactersAndSaysHowLongItWas) {
    EXPECT_EQ(shortened("short", 5), "short");
    EXPECT_EQ(shortened("longer", 5), "longe... (6 bytes)");
    EXPECT_EQ(shortened("a€€", 3), "a... (7 bytes)");
    EXPECT_EQ(shortened_lines("first\nlonger\n\nx", 5), "first\nlonge... (6 bytes)\n\nx");
}

}  // namespace
}  // namespace pw

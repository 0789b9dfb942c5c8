// Words to avoid in comments, texts of the program, names and documentation, and what to write instead.
#include "tests/house/tree_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace {

enum class Where { Everywhere, EverywhereAndNames, Sources };  // Sources: no pages

struct Fault {
    std::string_view words;    // one after the other; "#" is a number or a format field; a capital must be one
    std::string_view instead;  // what to write
    Where where = Where::Everywhere;
    std::string_view unless = {};  // a phrase that is fine
};

constexpr Fault kFaults[] = {
    {"beside", "in parallel with, in addition to, against, next to, outside", Where::EverywhereAndNames},
    {"behind", "after, later, under", Where::EverywhereAndNames},
    {"stand", "be, appear, be listed", Where::Everywhere, "stand for"},
    {"stands", "is, appears, is listed", Where::Everywhere, "stands for"},
    {"stood", "was, appeared", Where::Everywhere, "stood for"},
    {"whoever", "a noun: the caller, the reader, the device", Where::EverywhereAndNames},
    {"nobody", "a noun: no task, no device, no reader"},
    {"anybody", "a noun: any task, any program"},
    {"somebody", "a noun: a reader, a program"},
    {"since #", "for, before a duration"},
    {"so many", "the number, or the name of the parameter"},
    {"so much", "the number, or the name of the parameter"},
    {"so long", "the duration, this long", Where::Everywhere, "takes so long"},
    {"learnt", "learned, trained"},
    {"Of a", "the subject first"},
    {"Of an", "the subject first"},
    {"Of the", "the subject first"},
    {"Of several", "the subject first"},
    {"Of two", "the subject first"},
    {"who", "a noun, or: code that, tasks that", Where::Sources},
    {"tells", "returns, prints, reports", Where::Sources},
    {"hears", "receives", Where::Sources},
    {"wants", "needs, requires", Where::Sources},
    {"knows", "has, stores, uses", Where::Sources},
};

enum class Kind { Source, Page, Text, Other };

Kind kind_of(const std::filesystem::path& path) {
    const std::string ending = path.extension().string(), name = path.filename().string();
    if (ending == ".h" || ending == ".cpp" || ending == ".cu" || ending == ".cuh")
        return Kind::Source;
    if (ending == ".md")
        return Kind::Page;
    const bool is_text = ending == ".py" || ending == ".yaml" || ending == ".cmake" || name == "CMakeLists.txt" ||
                         (ending.empty() && path.parent_path().filename() == "scripts");
    return is_text ? Kind::Text : Kind::Other;
}

constexpr char kBreak = '\1';  // no phrase goes over it

// Writes `by` over [begin, end) of the text; line breaks stay.
void blank(std::string& text, std::size_t begin, std::size_t end, char by) {
    for (std::size_t at = begin; at < std::min(end, text.size()); ++at)
        if (text[at] != '\n')
            text[at] = by;
}

// The end of the comment, literal or character that begins at `at` of a source; `at` if none does.
std::size_t end_of_token(const std::string& text, std::size_t at) {
    const auto after = [&](std::string_view end, std::size_t from) {
        const std::size_t found = text.find(end, from);
        return found == std::string::npos ? text.size() : found + end.size();
    };
    if (text.compare(at, 2, "//") == 0)
        return std::min(text.find('\n', at), text.size());
    if (text.compare(at, 2, "/*") == 0)
        return after("*/", at + 2);
    if (text[at] == 'R' && at + 1 < text.size() && text[at + 1] == '"') {
        const std::size_t open = text.find('(', at);
        return open == std::string::npos ? at : after(")" + text.substr(at + 2, open - at - 2) + "\"", open);
    }
    const bool digits = at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;  // 1'000
    if (text[at] != '"' && (text[at] != '\'' || digits))
        return at;
    for (std::size_t end = at + 1; end < text.size() && text[end] != '\n'; ++end)
        if (text[end] == '\\')
            ++end;
        else if (text[end] == text[at])
            return end + 1;
    return at;
}

// Keeps the comments and literals of a source, or with `names` everything else.
std::string part_of_source(std::string text, bool names) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = end_of_token(text, at);
        const bool is_prose = end > at && text[at] != '\'';
        if (end == at) {
            if (!names && std::isspace(static_cast<unsigned char>(text[at])) == 0)
                blank(text, at, at + 1, kBreak);
        } else if (names || !is_prose) {
            blank(text, at, end, kBreak);
        } else {
            for (std::size_t mark = at; mark < end; ++mark)
                if (text[mark] == '\\')
                    blank(text, mark, mark + 2, ' ');
                else if (text[mark] == '"' || text[mark] == '/')
                    text[mark] = ' ';
        }
        at = std::max(end, at + 1);
    }
    return text;
}

// Keeps the prose of a page: no code, no targets of links.
std::string prose_of_page(std::string text) {
    bool fenced = false;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const bool fence = text.compare(begin, 3, "```") == 0;
        fenced = fenced != fence;
        if (fenced || fence || text.compare(begin, 4, "    ") == 0)
            blank(text, begin, end, kBreak);
        begin = end + 1;
    }
    for (const auto& [open, close] : {std::pair{"`", "`"}, {"](", ")"}, {"<", ">"}})
        for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
            const std::size_t end = text.find(close, at + std::string_view(open).size());
            if (end != std::string::npos)
                blank(text, at, end + 1, kBreak);
        }
    return text;
}

struct Word {
    std::string text;   // empty: a break
    std::string lower;  // the same without capitals
    int line;
};

std::string without_capitals(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

std::vector<Word> words_in(const std::string& text) {
    std::vector<Word> words;
    int line = 1;
    for (std::size_t at = 0; at < text.size();) {
        const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; };
        std::size_t end = at;
        while (end < text.size() && is_part(text[end]))
            ++end;
        if (const std::string word = text.substr(at, end - at); end > at)
            words.push_back({word, without_capitals(word), line});
        else if (text[at] == '{')
            words.push_back({"{", "{", line});
        else if (text[at] == kBreak && (words.empty() || !words.back().text.empty()))
            words.push_back({"", "", line});
        line += end == at && text[at] == '\n' ? 1 : 0;
        at = std::max(end, at + 1);
    }
    return words;
}

bool is_word(const Word& word, const std::string& pattern) {
    if (pattern == "#")
        return word.text == "{" || (!word.text.empty() && std::isdigit(static_cast<unsigned char>(word.text[0])) != 0);
    return (std::isupper(static_cast<unsigned char>(pattern.front())) != 0 ? word.text : word.lower) == pattern;
}

bool is_phrase(const std::vector<Word>& words, std::size_t at, const std::vector<Word>& phrase) {
    if (at + phrase.size() > words.size())
        return false;
    for (std::size_t n = 0; n < phrase.size(); ++n)
        if (!is_word(words[at + n], phrase[n].text))
            return false;
    return true;
}

std::vector<Word> phrase_of(std::string_view text) {
    if (const std::size_t number = text.find('#'); number != std::string_view::npos)
        return {{std::string(text.substr(0, number - 1)), "", 0}, {"#", "", 0}};
    return words_in(std::string(text));
}

std::string complaint(int line, const Fault& fault) {
    return "line " + std::to_string(line) + ": '" + std::string(fault.words) + "', write " +
           std::string(fault.instead) + "\n";
}

// One line per fault in the words.
std::string faults_in_words(const std::vector<Word>& words, const Fault& fault) {
    const std::vector<Word> phrase = phrase_of(fault.words), fine = phrase_of(fault.unless);
    std::string complaints;
    for (std::size_t at = 0; at < words.size(); ++at) {
        if (!is_phrase(words, at, phrase))
            continue;
        bool is_fine = false;
        for (std::size_t before = 0; before < fine.size() && before <= at; ++before)
            is_fine = is_fine || is_phrase(words, at - before, fine);
        if (!is_fine)
            complaints += complaint(words[at].line, fault);
    }
    return complaints;
}

// One line per name that contains the word.
std::string faults_in_names(const std::vector<Word>& names, const Fault& fault) {
    std::string complaints;
    for (const Word& name : names)
        if (name.lower.find(fault.words) != std::string::npos)
            complaints += complaint(name.line, fault);
    return complaints;
}

std::string faults_in(Kind kind, const std::string& text) {
    const bool source = kind == Kind::Source;
    const std::vector<Word> words = words_in(source               ? part_of_source(text, false)
                                             : kind == Kind::Page ? prose_of_page(text)
                                                                  : text);
    const std::vector<Word> names = words_in(source ? part_of_source(text, true) : "");
    std::string complaints;
    for (const Fault& fault : kFaults) {
        if (kind != Kind::Page || fault.where != Where::Sources)
            complaints += faults_in_words(words, fault);
        if (fault.where == Where::EverywhereAndNames)
            complaints += faults_in_names(names, fault);
    }
    return complaints;
}

}  // namespace

TEST(Words, AreThoseOfTheField) {
    int files = 0;
    for (auto entry = std::filesystem::recursive_directory_iterator(kRoot); entry != end(entry); ++entry) {
        const std::string path = std::filesystem::relative(entry->path(), kRoot).string();
        if (entry->is_directory() && (path.front() == '.' || path.starts_with("build") || path == "out" ||
                                      path == "tests/fuzz" || path == "shared"))
            entry.disable_recursion_pending();
        const Kind kind = kind_of(entry->path());
        if (!entry->is_regular_file() || kind == Kind::Other || path == "tests/house/test_words.cpp")
            continue;
        EXPECT_EQ(faults_in(kind, text_of(entry->path())), "") << path;
        ++files;
    }
    EXPECT_GT(files, 200) << "few files in " << kRoot;
}

TEST(WordsTest, FindsFaultsInCommentsTextsAndNames) {
    const std::string expected = "line 2: 'behind', write after, later, under\n";
    EXPECT_EQ(faults_in(Kind::Source, "int a;\n// The layers behind a cut.\n"), expected);
    EXPECT_EQ(faults_in(Kind::Source, "int a;\nint b = 0;  /* behind a */\n"), expected);
    EXPECT_EQ(faults_in(Kind::Source, "\nfail(\"nothing is expected\\nbehind this\");\n"), expected);
    EXPECT_EQ(faults_in(Kind::Source, "\nconst char* text = R\"x(\"behind\")x\";\n"), expected);
    EXPECT_EQ(faults_in(Kind::Source, "\nint look_Behind(int set);\n"), expected);
    EXPECT_EQ(faults_in(Kind::Page, "\nIt is *behind* a cut.\n"), expected);
    EXPECT_EQ(faults_in(Kind::Text, "\n# behind a cut\n"), expected);
}

TEST(WordsTest, FindsPhrasesOverLines) {
    EXPECT_NE(faults_in(Kind::Source, "// Returns so\n// many bytes.\n"), "");
    EXPECT_NE(faults_in(Kind::Source, "fail(\"silent since \"\n     \"{}\", time);\n"), "");
    EXPECT_NE(faults_in(Kind::Page, "It is silent since 30.01 s.\n"), "");
    EXPECT_NE(faults_in(Kind::Page, "Of the layers the last one counts.\n"), "");
    EXPECT_NE(faults_in(Kind::Source, "// the caller who tells it\n"), "");
}

TEST(WordsTest, FindsNoFaultInCodeAndFinePhrases) {
    for (const char* line :
         {"int so, many;  // so\nint many;", "// stands for a message", "// a stand-in", "// the end of the list",
          "char c = '\"'; int a = 1'000;  // a", "std::string knows;", "// understands", "\"so\", \"many\"[0]"})
        EXPECT_EQ(faults_in(Kind::Source, line), "") << line;
    for (const char* page :
         {"People who want to know", "`behind`", "    behind\n", "```\nbehind\n```\n", "[a](behind.md)",
          "Why a step takes so long", "since the first step", "so\n\n    a\n\nmany"})
        EXPECT_EQ(faults_in(Kind::Page, page), "") << page;
}

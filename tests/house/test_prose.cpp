// Pronouns and long sentences in pages and comments: a budget for each file. A reader looks for the noun that a pronoun
// replaces, so prose repeats the noun.
#include "tests/house/tree_text.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Budget {
    std::vector<std::vector<std::string_view>> phrases;
    double per_thousand;  // of the words of a file
    int least;            // in addition
};

const std::vector<Budget> kBudgets = {{{{"those"}}, 1, 1},
                                      {{{"that", "of"}, {"those", "of"}}, 0.4, 1},
                                      {{{"one"}, {"ones"}}, 4, 2},
                                      {{{"other"}, {"others"}}, 3, 2},
                                      {{{";"}}, 4, 1}};

// Removes what is between two marks: code, and the targets of links.
void remove_between(std::string& line, std::string_view open, std::string_view close) {
    for (std::size_t at = line.find(open); at != std::string::npos; at = line.find(open, at + 1)) {
        const std::size_t end = line.find(close, at + open.size());
        if (end == std::string::npos)
            return;
        line.replace(at, end + close.size() - at, " x ");
    }
}

// Returns the comment that a line of a source ends with.
std::string comment_of(const std::string& line) {
    for (std::size_t at = line.find("//"); at != std::string::npos; at = line.find("//", at + 2))
        if (at == 0 || line[at - 1] == ' ')
            return line.substr(at + 2);
    return "";
}

// Returns the comments of a source, or a page without its code.
std::string prose_in(const fs::path& path, const std::string& text) {
    std::istringstream lines(text);
    std::string prose;
    bool is_fenced = false;
    for (std::string line; std::getline(lines, line);) {
        if (is_source(path)) {
            line = comment_of(line);
        } else if (line.find("```") != std::string::npos) {
            is_fenced = !is_fenced;
            continue;
        } else if (is_fenced || line.starts_with("    ")) {
            continue;
        }
        remove_between(line, "`", "`");
        remove_between(line, "](", ")");
        prose += line + '\n';
    }
    return prose;
}

// Returns the words without capitals, and semicolons.
std::vector<std::string> words_of_prose(const std::string& prose) {
    std::vector<std::string> words = {""};
    for (const char c : prose) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isalpha(letter) != 0 || c == '\'')
            words.back() += static_cast<char>(std::tolower(letter));
        else if (!words.back().empty())
            words.emplace_back();
        if (c == ';')
            words.insert(words.end() - 1, ";");
    }
    words.pop_back();
    return words;
}

int count_of(const std::vector<std::string>& words, const std::vector<std::vector<std::string_view>>& phrases) {
    int count = 0;
    for (auto at = words.begin(); at != words.end(); ++at)
        for (const std::vector<std::string_view>& phrase : phrases)
            if (words.end() - at >= std::ssize(phrase) && std::equal(phrase.begin(), phrase.end(), at))
                ++count;
    return count;
}

// Returns a line for each budget that the file exceeds.
std::string excess_of(const fs::path& path, const std::string& text) {
    const std::vector<std::string> words = words_of_prose(prose_in(path, text));
    std::string excess;
    for (const auto& [phrases, per_thousand, least] : kBudgets) {
        const int most = least + static_cast<int>(static_cast<double>(words.size()) * per_thousand / 1000);
        const int count = count_of(words, phrases);
        if (count <= most)
            continue;
        for (const std::string_view word : phrases.front())
            excess += std::string(word) + ' ';
        excess += std::to_string(count) + " times in " + std::to_string(words.size()) + " words, at most " +
                  std::to_string(most) + "\n";
    }
    return excess;
}

}  // namespace

TEST(Prose, NamesWhatItMeans) {
    std::vector<fs::path> files;
    for (const auto& [folder, included] : kMayInclude)
        for (const fs::path& path : sources_below(kRoot / folder))
            files.push_back(path);
    // What commands print, and the history of changes.
    const std::set<std::string> exempt = {"commands.md", "CHANGELOG.md"};
    for (const fs::path& folder : {kRoot, kRoot / "docs"})
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".md" && !exempt.contains(entry.path().filename()))
                files.push_back(entry.path());
    EXPECT_GT(files.size(), 200U) << "few files in " << kRoot;
    for (const fs::path& path : files)
        EXPECT_EQ(excess_of(path, text_of(path)), "") << fs::relative(path, kRoot);
}

TEST(ProseTest, CountsWordsOfCommentsAndPages) {
    EXPECT_EQ(excess_of("a.h", "int those = 1;  // those\n"), "");
    EXPECT_EQ(excess_of("a.h", "// those\nint a;  // Those\n"), "those 2 times in 2 words, at most 1\n");
    EXPECT_EQ(excess_of("a.md", "that\nof a; that of b\n"), "that of 2 times in 7 words, at most 1\n");
    EXPECT_EQ(excess_of("a.md", "`a; b; c` [d](e;f;g)\n\n    h; i; j\n```\nk; l; m\n```\n"), "");
}

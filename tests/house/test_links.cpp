// The links between the pages of the documentation: their files and headings exist.
#include "tests/house/tree_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

namespace {

using Anchors = std::set<std::string>;

// GitHub's anchor of a heading: small letters, digits and dashes.
std::string anchor_of(const std::string& heading) {
    std::string anchor;
    for (const unsigned char c : heading)
        if (std::isalnum(c) != 0 || c == '-' || c == '_' || c >= 0x80)
            anchor += static_cast<char>(std::tolower(c));
        else if (c == ' ')
            anchor += '-';
    return anchor;
}

// Calls act(line) for the lines of a page that are not code.
template <class Act>
void for_each_line(const std::string& page, Act act) {
    std::istringstream lines(page);
    bool fenced = false;
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("```"))
            fenced = !fenced;
        else if (!fenced && !line.starts_with("    "))
            act(line);
}

// The anchors of the headings, and those that the page sets.
Anchors anchors_of(const std::string& page) {
    Anchors anchors;
    const std::string set = "<a id=\"";
    for_each_line(page, [&](const std::string& line) {
        if (const std::size_t begin = line.find(set); begin != std::string::npos) {
            const std::size_t id = begin + set.size();
            anchors.insert(line.substr(id, line.find('"', id) - id));
        }
        if (line.starts_with("#"))
            anchors.insert(anchor_of(line.substr(line.find_first_not_of("# "))));
    });
    return anchors;
}

// One line per link of the page that leads nowhere. `text_of_page` returns the text of a page and nothing if there is
// none.
template <class TextOfPage>
std::string broken_links_in(const std::string& name, const std::string& page, TextOfPage text_of_page) {
    std::string complaints;
    for_each_line(page, [&](const std::string& line) {
        for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 1)) {
            const std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
            if (target.starts_with("http"))
                continue;
            const std::size_t hash = std::min(target.find('#'), target.size());
            const std::string file = target.substr(0, hash);
            const std::string path =
                file.empty() ? name : (std::filesystem::path(name).parent_path() / file).lexically_normal().string();
            const auto text = text_of_page(path);
            const bool has_anchor = hash == target.size() || !path.ends_with(".md") ||
                                    (text && anchors_of(*text).contains(target.substr(hash + 1)));
            if (!text || !has_anchor)
                complaints += target + "\n";
        }
    });
    return complaints;
}

}  // namespace

TEST(Links, LeadToFilesAndHeadings) {
    const auto text = [](const std::string& path) -> std::optional<std::string> {
        if (!std::filesystem::exists(kRoot / path))
            return std::nullopt;
        return path.ends_with(".md") ? text_of(kRoot / path) : "";
    };
    int pages = 0;
    const auto check = [&](const std::filesystem::directory_entry& entry) {
        if (entry.path().extension() != ".md")
            return;
        const std::string path = std::filesystem::relative(entry.path(), kRoot).string();
        EXPECT_EQ(broken_links_in(path, text_of(entry.path()), text), "") << path;
        ++pages;
    };
    for (const auto& entry : std::filesystem::directory_iterator(kRoot))
        check(entry);
    for (const char* folder : {"docs", "examples", "results"})
        for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder))
            check(entry);
    EXPECT_GT(pages, 20) << "few pages in " << kRoot;
}

TEST(LinksTest, FindsBrokenLinks) {
    const std::map<std::string, std::string> pages = {
        {"docs/a.md", "# One\n\n## `two`: a & b\n\n<a id=\"old\"></a>\n```\n# code\n```\n"}, {"b.txt", ""}};
    const auto text = [&](const std::string& path) -> std::optional<std::string> {
        return pages.contains(path) ? std::optional(pages.at(path)) : std::nullopt;
    };
    const auto broken = [&](const std::string& page) { return broken_links_in("docs/c.md", page, text); };
    EXPECT_EQ(broken("[a](a.md), [a](a.md#one), [a](a.md#two-a--b), [a](a.md#old), [b](../b.txt)\n"), "");
    EXPECT_EQ(broken("[web](https://example.org/c.md)\n    [code](d.md)\n"), "");
    EXPECT_EQ(broken("[a](a.md#three)\n"), "a.md#three\n");
    EXPECT_EQ(broken("[a](a.md#code)\n"), "a.md#code\n");
    EXPECT_EQ(broken("[a](a.md) [d](d.md)\n"), "d.md\n");
}

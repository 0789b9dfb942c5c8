// The lines of a log, for readers of text formats.
#pragma once

#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

struct LogLine {
    const std::string& path;
    int number;  // from 1
    std::string_view text;
    const char* help;

    template <class... Args>
    [[noreturn]] void reject(fmt::format_string<Args...> fact, Args&&... args) const {
        fail("trace '{}', line {}: {}: {}\n  help: {}", path, number, fmt::format(fact, std::forward<Args>(args)...),
             shortened(std::string(text), 80), help);
    }

    std::vector<std::string_view> words() const {
        constexpr std::string_view kBlanks = " \t\r";
        std::vector<std::string_view> words;
        for (std::size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
            const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
            words.push_back(text.substr(at, end - at));
            at = text.find_first_not_of(kBlanks, end);
        }
        return words;
    }
};

// Returns the number that is a whole word; -1 for another word, and for one that is negative or not finite.
inline double number_in_log(std::string_view word) {
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    return whole && std::isfinite(number) && number >= 0 ? number : -1;
}

template <class Take>
void for_each_line(const std::string& path, std::string_view text, const char* help, Take take) {
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        take(LogLine{path, number, text.substr(0, end), help});
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

}  // namespace pw

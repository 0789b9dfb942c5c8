#include "cli/option_numbers.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace pw {

namespace {

template <class T>
std::optional<T> number_in(const std::string& text) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Returns what is wrong with a text. Empty: the text is a number in the range.
std::string refuse_number(const std::string& text, std::int64_t least, std::int64_t most) {
    const std::optional<std::int64_t> number = number_in<std::int64_t>(text);
    if (number && *number >= least && *number <= most)
        return {};
    const std::optional<double> other = number_in<double>(text);
    const bool whole = !number && other && *other == std::floor(*other) && *other >= static_cast<double>(least) &&
                       *other <= static_cast<double>(most);
    if (whole)
        return fmt::format("'{}': write {}", text, static_cast<std::int64_t>(*other));
    return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
}

// Returns the texts between commas.
std::vector<std::string> texts_between_commas(const std::string& list) {
    std::vector<std::string> parts(1);
    for (const char c : list)
        if (c == ',')
            parts.emplace_back();
        else
            parts.back() += c;
    return parts;
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
    return CLI::Validator([least, most](std::string& text) { return refuse_number(text, least, most); }, "");
}

CLI::Validator whole_numbers(std::int64_t least, std::int64_t most) {
    return CLI::Validator(
        [least, most](std::string& list) -> std::string {
            for (const std::string& text : texts_between_commas(list)) {
                if (text.empty())
                    return fmt::format("'{}' lacks a number; several are written as in 4,8", list);
                if (const std::string wrong = refuse_number(text, least, most); !wrong.empty())
                    return wrong + (text.find_first_of(";: ") == text.npos ? "" : "; several are written as in 4,8");
            }
            return {};
        },
        "");
}

std::vector<int> numbers_in(const std::string& list) {
    std::vector<int> numbers;
    for (const std::string& text : texts_between_commas(list))
        numbers.push_back(number_in<int>(text).value_or(0));
    return numbers;
}

CLI::Validator seconds_above_zero() {
    return CLI::Validator(
        [](std::string& text) -> std::string {
            const std::optional<double> seconds = number_in<double>(text);
            return seconds && *seconds > 0 && std::isfinite(*seconds)
                       ? std::string{}
                       : fmt::format("'{}' is not a number of seconds above 0, such as 5", text);
        },
        "");
}

}  // namespace pw

// Closed choices: an enum, and one table of the names of its values. Code that reads, prints or lists the values takes
// the names from the table. Code that decides compares values, never names.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pw {

template <class E>
struct Choice {
    std::string_view name;
    E value;
};

// The table follows its enum:
//   template <>
//   inline constexpr Choice<Precision> kChoices<Precision>[] = {{"fp32", Precision::Fp32}, {"tf32", Precision::Tf32}};
// A value without a row cannot be chosen.
template <class E>
inline constexpr Choice<E> kChoices[1] = {{"", E{}}};

// Returns the name of a value that has a row, an empty name for values without a row.
template <class E>
constexpr std::string_view name_of(E value) requires(std::is_enum_v<E> && !kChoices<E>[0].name.empty()) {
    for (const Choice<E>& choice : kChoices<E>)
        if (choice.value == value)
            return choice.name;
    return {};
}

// Returns the names in the order of the table.
template <class E>
std::vector<std::string_view> names_of() {
    std::vector<std::string_view> names;
    for (const Choice<E>& choice : kChoices<E>)
        names.push_back(choice.name);
    return names;
}

// Returns the value of that name, or nothing if there is none.
template <class E>
constexpr std::optional<E> parse_choice(std::string_view name) {
    for (const Choice<E>& choice : kChoices<E>)
        if (choice.name == name)
            return choice.value;
    return std::nullopt;
}

}  // namespace pw

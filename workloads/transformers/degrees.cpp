#include "workloads/transformers/degrees.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

std::string print_degree(Degree degree, int value) {
    const DegreeFacts& facts = facts_of(degree);
    return facts.words != nullptr ? facts.words->print(value) : std::to_string(value);
}

std::string print_degree(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages) {
    std::vector<std::string> texts;
    for (const int value : values_of(degree, of_all, of_stages))
        texts.push_back(print_degree(degree, value));
    return fmt::format("{}", fmt::join(texts, "|"));
}

std::vector<int> values_of(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages) {
    const DegreeFacts& facts = facts_of(degree);
    std::vector<int> values;
    for (const Parallel& of_stage : of_stages)
        values.push_back(facts.value(of_stage));
    if (values.empty() || std::ranges::count(values, values.front()) == std::ssize(values))
        return {facts.value(of_all)};
    return values;
}

}  // namespace pw

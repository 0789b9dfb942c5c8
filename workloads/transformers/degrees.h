// What a plan may choose for the devices of a transformer's stages: a row for each, in the order in which a plan is
// printed.
#pragma once

#include "workloads/transformers/parallel.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pw {

enum class Degree : std::uint8_t { Tensor, Pipeline, Context, Expert, Data, Zero, Recompute };

inline constexpr int kHighestDegree = 1'000'000;

// A value is a number, or the place of a name in the list of names.
struct DegreeFacts {
    Degree degree;
    const char* name;  // key of the blocks `parallel` and `search`, heading of tables, key of JSON
    const char* mark;  // before the value in the short name of a plan
    int least = 1, most = kHighestDegree;
    bool by_stage = false;                               // stages may have unlike values
    bool divides_layers = false;                         // the costs of a layer depend on it
    const char* summary = name;                          // in a list of the degrees above the least; null: not listed
    std::vector<std::string_view> (*names)() = nullptr;  // null: the value is a number
    int (*value)(const Parallel&) = nullptr;
    void (*set)(Parallel&, int value) = nullptr;
};

namespace degree_rows {

template <auto member>
constexpr DegreeFacts with_member(DegreeFacts facts) {
    using Value = std::remove_cvref_t<decltype(Parallel{}.*member)>;
    facts.value = [](const Parallel& degrees) { return static_cast<int>(degrees.*member); };
    facts.set = [](Parallel& degrees, int value) { degrees.*member = static_cast<Value>(value); };
    return facts;
}

}  // namespace degree_rows

inline constexpr std::array kDegrees = {
    degree_rows::with_member<&Parallel::tensor>(
        {.degree = Degree::Tensor, .name = "tensor", .mark = "TP", .by_stage = true, .divides_layers = true}),
    degree_rows::with_member<&Parallel::pipeline>({.degree = Degree::Pipeline, .name = "pipeline", .mark = "PP"}),
    degree_rows::with_member<&Parallel::context>(
        {.degree = Degree::Context, .name = "context", .mark = "CP", .by_stage = true, .divides_layers = true}),
    degree_rows::with_member<&Parallel::expert>(
        {.degree = Degree::Expert, .name = "expert", .mark = "EP", .divides_layers = true}),
    degree_rows::with_member<&Parallel::data>({.degree = Degree::Data, .name = "data", .mark = "DP"}),
    degree_rows::with_member<&Parallel::zero>({.degree = Degree::Zero,
                                               .name = "zero",
                                               .mark = "zero ",
                                               .least = 0,
                                               .most = 3,
                                               .by_stage = true,
                                               .summary = "ZeRO"}),
    degree_rows::with_member<&Parallel::recompute>({.degree = Degree::Recompute,
                                                    .name = "recompute",
                                                    .mark = "recompute ",
                                                    .least = 0,
                                                    .most = static_cast<int>(RecomputeKind::Full),
                                                    .by_stage = true,
                                                    .summary = nullptr,
                                                    .names = names_of<RecomputeKind>}),
};

constexpr const DegreeFacts& facts_of(Degree degree) { return kDegrees[static_cast<std::size_t>(degree)]; }

// Prints "4", or "full".
std::string print_degree(Degree degree, int value);
// Prints "4", or "4|2" if the devices of the pipeline differ. `of_stages` may be empty.
std::string print_degree(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages);
// Returns the value of each device of the pipeline if they differ, else one value.
std::vector<int> values_of(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages);

// Values to try of each degree. An item is one value for all stages, or a value for each device of the pipeline.
using DegreeLists = std::array<std::vector<std::vector<int>>, kDegrees.size()>;

}  // namespace pw

// What a plan may choose for the devices of a transformer's stages: a row for each, in the order in which a plan is
// printed.
#pragma once

#include "workloads/transformers/parallel.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pw {

enum class Degree : std::uint8_t { Tensor, Pipeline, Context, Expert, ExpertTensor, Data, Zero, Recompute };

inline constexpr int kHighestDegree = 1'000'000;

// Words of a value that is no number.
struct DegreeWords {
    std::vector<std::string_view> (*names)();
    std::string (*print)(int value);
    std::optional<int> (*parse)(std::string_view text);
};

struct DegreeFacts {
    Degree degree;
    const char* name;  // key of the blocks `parallel` and `search`, heading of tables, key of JSON
    const char* mark;  // before the value in the short name of a plan
    int least = 1, most = kHighestDegree;
    bool by_stage = false;               // stages may have unlike values
    bool divides_layers = false;         // the costs of a layer depend on it
    const char* summary = name;          // in a list of the degrees above the least; null: not listed
    const DegreeWords* words = nullptr;  // null: the value is a number
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

inline constexpr DegreeWords kModuleWords = {words_for_modules,
                                             [](int value) { return print_modules(static_cast<ModuleSet>(value)); },
                                             [](std::string_view text) -> std::optional<int> {
                                                 const std::optional<ModuleSet> set = parse_modules(text);
                                                 return set ? std::optional(static_cast<int>(*set)) : std::nullopt;
                                             }};

}  // namespace degree_rows

inline constexpr std::array kDegrees = {
    degree_rows::with_member<&Parallel::tensor>(
        {.degree = Degree::Tensor, .name = "tensor", .mark = "TP", .by_stage = true, .divides_layers = true}),
    degree_rows::with_member<&Parallel::pipeline>({.degree = Degree::Pipeline, .name = "pipeline", .mark = "PP"}),
    degree_rows::with_member<&Parallel::context>(
        {.degree = Degree::Context, .name = "context", .mark = "CP", .by_stage = true, .divides_layers = true}),
    degree_rows::with_member<&Parallel::expert>(
        {.degree = Degree::Expert, .name = "expert", .mark = "EP", .divides_layers = true}),
    degree_rows::with_member<&Parallel::expert_tensor>(
        {.degree = Degree::ExpertTensor, .name = "expert_tensor", .mark = "ETP", .divides_layers = true}),
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
                                                    .most = kAllModules,
                                                    .by_stage = true,
                                                    .summary = nullptr,
                                                    .words = &degree_rows::kModuleWords}),
};

constexpr const DegreeFacts& facts_of(Degree degree) { return kDegrees[static_cast<std::size_t>(degree)]; }

// Prints "4", "full", or "layernorm+mlp".
std::string print_degree(Degree degree, int value);
// Prints "4", or "4|2" if the devices of the pipeline differ. `of_stages` may be empty.
std::string print_degree(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages);
// Returns the value of each device of the pipeline if they differ, else one value.
std::vector<int> values_of(Degree degree, const Parallel& of_all, const std::vector<Parallel>& of_stages);

// Values to try of each degree. An item is one value for all stages, or a value for each device of the pipeline.
using DegreeLists = std::array<std::vector<std::vector<int>>, kDegrees.size()>;

}  // namespace pw

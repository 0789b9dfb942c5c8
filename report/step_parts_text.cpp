#include "report/step_parts_text.h"

#include "report/table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

namespace pw {

namespace {

Ns step_of(const StepParts& parts) { return std::accumulate(parts.times.begin(), parts.times.end(), Ns{0}); }

template <class Time>
std::vector<std::string> row_of_times(std::string name, const NamedParts& first, const std::vector<NamedParts>& others,
                                      Time time) {
    std::vector<std::string> row = {std::move(name), print_time(time(first.parts))};
    for (const NamedParts& other : others) {
        row.push_back(print_time(time(other.parts)));
        row.push_back(print_signed_time(time(other.parts) - time(first.parts)));
    }
    return row;
}

}  // namespace

Json json_of(const StepParts& parts) {
    Json json;
    for (const StepPartFacts& facts : kStepParts)
        json[std::string(facts.name)] = parts[facts.part];
    return json;
}

std::string print_differences(const NamedParts& first, const std::vector<NamedParts>& others) {
    std::vector<std::string> header = {"part of the step", first.name};
    for (const NamedParts& other : others)
        header.insert(header.end(), {other.name, "difference"});
    Table table(std::move(header));
    for (const StepPartFacts& facts : kStepParts) {
        const auto has = [&](const NamedParts& one) { return one.parts[facts.part] != 0; };
        if (has(first) || std::any_of(others.begin(), others.end(), has))
            table.add(row_of_times(std::string(facts.words), first, others,
                                   [&](const StepParts& parts) { return parts[facts.part]; }));
    }
    table.add(row_of_times("step", first, others, step_of));
    return table.print();
}

}  // namespace pw

#include "search/plan_choice.h"

#include "job/plan.h"
#include "job/settings.h"
#include "search/choice_ways.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

namespace {

// Returns the numbers as "2 x 38, 3, 1".
std::string print_blocks(const std::vector<int>& blocks) {
    std::vector<std::string> parts;
    for (auto at = blocks.begin(); at != blocks.end();) {
        const auto end = std::find_if(at, blocks.end(), [&](int number) { return number != *at; });
        parts.push_back(end - at > 1 ? fmt::format("{} x {}", *at, end - at) : std::to_string(*at));
        at = end;
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

// Returns the numbers as "[2-3, 0-1]".
std::string print_hosts(const std::vector<int>& hosts) {
    std::vector<std::string> parts;
    for (std::size_t first = 0, end = 0; first < hosts.size(); first = end) {
        for (end = first + 1; end < hosts.size() && hosts[end] == hosts[end - 1] + 1;)
            ++end;
        parts.push_back(end - first > 1 ? fmt::format("{}-{}", hosts[first], hosts[end - 1])
                                        : std::to_string(hosts[first]));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::string> searched_schedules(const SearchSetup& setup) {
    const std::vector<std::string>& asked = setup.search.schedules;
    const bool all = searches_all_schedules(setup.search), usual = asked.empty() && searches_cluster(setup);
    if (asked.empty() && !usual)
        return {setup.pipeline.schedule};
    if (!all && !usual)
        return asked;
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        // All other schedules train differently, or not at all. Layers of a graph are divided for whole micro-batches.
        if (all ? !schedule.asynchronous() && schedule.trains && (!schedule.cuts_sequences() || searches_cluster(setup))
                : schedule.usual)
            names.emplace_back(schedule.name);
    return names;
}

const Schedule& searched_schedule(const SearchSetup& setup, const std::string& name) {
    try {
        const Schedule& schedule = schedule_named(setup, name);
        if (schedule.placement.divides_ends())
            fail(
                "schedule {} divides the embedding and the head among all devices, and a search divides whole layers\n "
                " help: "
                "search with another schedule, such as 1f1b",
                schedule.name);
        return schedule;
    } catch (const Error& error) {
        fail_at(setup, setup.search.schedules.empty() ? "pipeline.schedule" : "search.schedules", error,
                "search takes schedules by name: `pipewright list schedules`");
    }
}

KeptBytes kept_in_bounds(const Setup& setup) {
    KeptBytes kept = kept_of(setup);
    if (!setup.pipeline.offload.states.empty())
        kept.master = kept.states = 0;
    return kept;
}

bool searches_offload(const SearchSetup& setup) {
    return setup.search.offload != SearchConfig::Recompute::None || !setup.pipeline.offload.states.empty();
}

void check_searched_offload(const SearchSetup& setup, const Link& measured) {
    const std::vector<int>& states = setup.pipeline.offload.states;
    if (!states.empty() && std::ssize(states) < setup.pipeline.stages)
        setup.fail_at("pipeline.offload_states", "plans of a search have unlike numbers of stages",
                      "write offload_states: all");
    if (searches_offload(setup) && !setup.cluster.host_link && measured == Link{})
        setup.fail_at(states.empty() ? "search.offload" : "pipeline.offload_states",
                      "how fast a device copies to the memory of its host is not known",
                      "write cluster.host_link: {bandwidth: 25 GB/s}, or measure a profile");
}

std::string print_degree(const PlanChoice& choice, Degree degree) {
    return print_degree(degree, choice.degrees, choice.of_stages);
}

std::vector<ChoicePart> parts_of(const PlanChoice& choice) {
    std::vector<ChoicePart> parts;
    for (const DegreeFacts& facts : kDegrees) {
        const std::string value = print_degree(choice, facts.degree);
        ChoicePart part{facts.name, value, fmt::format("{} {}", facts.name, value), facts.mark + value};
        if (facts.degree == Degree::Pipeline && choice.chunks() > 1) {
            part.value += fmt::format(" x {}", choice.chunks());
            part.text += fmt::format(" x {} stages", choice.chunks());
            part.mark += fmt::format("\u00d7{}", choice.chunks());
        }
        part.of_experts = facts.degree == Degree::Expert || facts.degree == Degree::ExpertTensor;
        part.is_said = !part.of_experts || facts.value(choice.degrees) > 1;
        if (facts.degree == Degree::ExpertTensor) {
            part.says = [](const PlanChoice& plan) { return plan.degrees.expert_tensor > 1; };
            part.mark = part.is_said ? part.mark : "";
        }
        parts.push_back(std::move(part));
        const std::string size = std::to_string(choice.micro_batch_size);
        if (facts.degree == Degree::Data)
            parts.push_back({"micro-batch", size, "micro-batches of " + size, "size " + size});
    }
    const bool is_cut = choice.slices > 1;
    const std::string value =
        fmt::format("{}{}", choice.slices, choice.slice_lengths == SliceLengths::Time ? " time" : "");
    const auto text_of = [&](WaysTo part) { return fmt::format("{}", fmt::join(words_of_ways(part, choice), ", ")); };
    parts.push_back({"slices", value, text_of(WaysTo::CutSequences), is_cut ? "slices " + value : ""});
    parts.back().says = [](const PlanChoice& plan) { return plan.slices > 1; };
    parts.back().is_said = is_cut;
    const std::string offloaded = text_of(WaysTo::SaveMemory);
    ChoicePart& part = parts.emplace_back(ChoicePart{"offloaded", "none", offloaded, offloaded});
    if (choice.offloaded > 0)
        part.value = std::to_string(choice.offloaded) +
                     (choice.offload_ahead > 1 ? fmt::format(" ({})", choice.offload_ahead) : "");
    part.of_offload = true;
    part.is_said = choice.offloaded > 0;
    return parts;
}

namespace {

std::string print_of_transformer(const PlanChoice& choice) {
    std::string text = choice.schedule;
    for (const ChoicePart& part : parts_of(choice))
        if (part.is_said)
            text += ", " + part.text;
    if (!choice.blocks.empty())
        text += ", blocks " + print_blocks(choice.blocks);
    return choice.hosts.empty() ? text : text + ", hosts " + print_hosts(choice.hosts);
}

}  // namespace

std::string print_variant(const PlanChoice& choice) {
    std::vector<std::string> parts = words_of_ways(WaysTo::CutSequences, choice);
    if (!choice.replicas.empty() && choice.stages > 1)
        parts.push_back(fmt::format("replicas {}", fmt::join(choice.replicas, " ")));
    if (choice.copies > 1)
        parts.push_back(fmt::format("{} replicas of the pipeline", choice.copies));
    for (std::string& words : words_of_ways(WaysTo::SaveMemory, choice))
        parts.push_back(std::move(words));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string print(const PlanChoice& choice) {
    if (choice.is_of_transformer())
        return print_of_transformer(choice);
    std::string text =
        choice.is_data_parallel()
            ? fmt::format("data parallel on {} devices, {} micro-batches of {}, {}", choice.devices.size(),
                          choice.micro_batches, choice.micro_batch_size, choice.schedule)
            : fmt::format("{}, {} stage{} on {} device{}, {} micro-batches of {}", choice.schedule, choice.stages,
                          choice.stages == 1 ? "" : "s", choice.devices.size(), choice.devices.size() == 1 ? "" : "s",
                          choice.micro_batches, choice.micro_batch_size);
    if (const std::string variant = print_variant(choice); !variant.empty())
        text += ", " + variant;
    return text;
}

}  // namespace pw

#include "search/clusters/cluster_choice.h"

#include "job/setup/rank_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

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

// Returns the layout in the notation of Megatron-LM, as "Ett|tt|tL".
std::string layout_of(const std::vector<int>& blocks) {
    std::vector<std::string> stages;
    for (const int number : blocks)
        stages.emplace_back(static_cast<std::size_t>(number), 't');
    stages.front().insert(0, "E");
    stages.back() += "L";
    return fmt::format("{}", fmt::join(stages, "|"));
}

// Returns what all stages have, or what the devices of the pipeline have, as "4|2".
template <class Print>
std::string print_of_stages(const ClusterChoice& choice, Print print) {
    std::vector<std::string> values;
    for (const Parallel& own : choice.of_stages)
        values.push_back(print(own));
    const bool differ = std::ranges::any_of(values, [&](const std::string& value) { return value != values.front(); });
    return differ ? fmt::format("{}", fmt::join(values, "|")) : print(choice.degrees);
}

}  // namespace

bool ClusterChoice::operator==(const ClusterChoice& other) const {
    const auto key = [](const ClusterChoice& one) {
        const Parallel& own = one.degrees;
        return std::tuple(one.schedule, one.chunks, one.micro_batch_size, own.tensor, own.pipeline, own.context,
                          own.expert, own.data, own.zero, own.recompute, own.recomputed, own.sequence, one.blocks,
                          one.hosts);
    };
    return key(*this) == key(other) && of_stages == other.of_stages;
}

std::string print_degree(const ClusterChoice& choice, int Parallel::*degree) {
    return print_of_stages(choice, [&](const Parallel& own) { return std::to_string(own.*degree); });
}

std::string print_recomputed(const ClusterChoice& choice) {
    return print_of_stages(choice, [](const Parallel& own) { return std::string(name_of(own.recompute)); });
}

std::string print(const ClusterChoice& choice) {
    const Parallel& own = choice.degrees;
    std::string text = fmt::format("{}, tensor {}, pipeline {}", choice.schedule,
                                   print_degree(choice, &Parallel::tensor), own.pipeline);
    if (choice.chunks > 1)
        text += fmt::format(" x {} stages", choice.chunks);
    text += fmt::format(", context {}", print_degree(choice, &Parallel::context));
    if (own.expert > 1)
        text += fmt::format(", expert {}", own.expert);
    text += fmt::format(", data {}, micro-batches of {}, zero {}, recompute {}", own.data, choice.micro_batch_size,
                        print_degree(choice, &Parallel::zero), print_recomputed(choice));
    if (!choice.blocks.empty())
        text += ", blocks " + print_blocks(choice.blocks);
    return choice.hosts.empty() ? text : text + ", hosts " + print_hosts(choice.hosts);
}

Setup setup_of(const SearchSetup& setup, const ClusterChoice& choice) {
    Setup chosen = setup;
    if (!choice.hosts.empty())
        choose_hosts(chosen, choice.hosts);
    PipelineConfig& pipeline = chosen.pipeline;
    chosen.parallel.degrees = choice.degrees;
    chosen.parallel.of_stages = choice.of_stages;
    pipeline.schedule = choice.schedule;
    pipeline.stages = choice.stages();
    pipeline.micro_batch_size = choice.micro_batch_size;
    pipeline.split = choice.blocks.empty() ? PipelineConfig::Split::Auto : PipelineConfig::Split::Layout;
    pipeline.cuts.clear();
    pipeline.lists.clear();
    pipeline.layout = choice.blocks.empty() ? "" : layout_of(choice.blocks);
    pipeline.blocks.clear();
    pipeline.replicas.clear();
    pipeline.copies = 1;
    pipeline.recompute = {};
    divide_among_replicas(chosen, setup.search.mini_batch);
    // The file's places of what is chosen no longer hold.
    std::erase_if(chosen.places, [](const auto& place) {
        const std::string_view key = place.first;
        return !key.starts_with("workload") && !key.starts_with("cluster") && !key.starts_with("training");
    });
    return chosen;
}

}  // namespace pw

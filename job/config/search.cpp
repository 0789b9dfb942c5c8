#include "job/config/blocks.h"

#include <algorithm>
#include <set>

namespace pw {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{kMostBatches} * kMostBatches;

// Reads every item of a list that must hold some items, each once.
template <class T, class Read>
std::vector<T> read_different(const Yaml& at, Read read) {
    std::vector<T> values;
    std::set<T> seen;
    for (const Yaml& item : at.items()) {
        values.push_back(read(item));
        if (!seen.insert(values.back()).second)
            item.complain(fmt::format("'{}' stands twice in '{}'", values.back(), at.path()), "write it once");
    }
    if (at.is_list() && values.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), "write what to try, or remove the key");
    return values;
}

std::vector<int> read_counts(const Yaml& at, std::int64_t most) {
    return read_different<int>(at, [&](const Yaml& item) { return static_cast<int>(item.integer(1, 1, most)); });
}

std::vector<std::string> read_schedules(const Yaml& at) {
    if (!at.is_text())
        return read_different<std::string>(at, [](const Yaml& item) { return item.text(); });
    if (at.text() != kAllSchedules)
        at.complain(fmt::format("'{}' is '{}'", at.path(), at.text()),
                    fmt::format("write {}, or a list of names, as in [gpipe, 1f1b]", kAllSchedules));
    return {std::string(kAllSchedules)};
}

std::vector<SearchConfig::Level> read_levels(const Yaml& at) {
    std::vector<SearchConfig::Level> levels;
    for (const Yaml& item : at.items()) {
        item.allow({"devices", "bandwidth"});
        SearchConfig::Level& level = levels.emplace_back();
        level.devices = static_cast<int>(item["devices"].integer(1, 1, kMostStages));
        level.bandwidth = item["bandwidth"].bandwidth(1);
        for (const char* key : {"devices", "bandwidth"})
            if (item.is_map() && !item[key].present())
                item.complain(fmt::format("'{}.{}' is missing", item.path(), key),
                              "write {devices: 4, bandwidth: 12 GB/s} for every level, the innermost first");
    }
    std::int64_t devices = 1;
    for (const SearchConfig::Level& level : levels)
        devices = std::min<std::int64_t>(devices * level.devices, kMostStages + 1);
    if (devices > kMostStages)
        at.complain(fmt::format("'{}' multiply to more than {} devices", at.path(), kMostStages),
                    "write the devices of one group of the level below, not of the whole cluster, for every level");
    if (at.is_list() && levels.empty())
        at.complain(fmt::format("'{}' is empty", at.path()),
                    "write the levels, the innermost first, or remove the key");
    return levels;
}

SearchConfig::Replicas read_replicas(const Yaml& at) {
    using Replicas = SearchConfig::Replicas;
    if (at.is_text() && parse_choice<Replicas>(at.text()))
        return Replicas::Equal;
    return at.boolean(false) ? Replicas::Yes : Replicas::No;
}

}  // namespace

bool wants_all_schedules(const SearchConfig& search) {
    return search.schedules.size() == 1 && search.schedules.front() == kAllSchedules;
}

SearchConfig read_search(const Yaml& at) {
    at.allow({"objective", "schedules", "micro_batch_sizes", "mini_batch", "stages", "replicas", "recompute", "p2p",
              "straight", "memory_limit", "levels", "tensor_parallel", "profile_batch"});
    SearchConfig search;
    search.objective = at["objective"].choice(search.objective);
    search.schedules = read_schedules(at["schedules"]);
    search.micro_batch_sizes = read_counts(at["micro_batch_sizes"], kMostBatches);
    search.mini_batch = at["mini_batch"].integer(1, 1, kMostSamples);
    search.stages = read_counts(at["stages"], kMostStages);
    search.replicas = read_replicas(at["replicas"]);
    search.recompute = at["recompute"].choice(search.recompute);
    search.tensor_parallel = at["tensor_parallel"].boolean(search.tensor_parallel);
    search.profile_batch = at["profile_batch"].present() ? at["profile_batch"].integer(1, 1, kMostSamples) : 0;
    search.p2p = at["p2p"].choice(search.p2p);
    search.straight = at["straight"].boolean(search.straight);
    search.memory_limit = at["memory_limit"].boolean(search.memory_limit);
    search.levels = read_levels(at["levels"]);
    return search;
}

std::string print_search(const SearchConfig& search) {
    std::vector<std::string> schedules, levels;
    for (const std::string& schedule : search.schedules)
        schedules.push_back(quoted(schedule));
    for (const SearchConfig::Level& level : search.levels)
        levels.push_back(
            fmt::format("{{devices: {}, bandwidth: {}}}", level.devices, exact_bandwidth(level.bandwidth)));
    const bool equal = search.replicas == SearchConfig::Replicas::Equal;
    const std::string replicas = equal ? std::string(name_of(search.replicas))
                                       : fmt::format("{}", search.replicas == SearchConfig::Replicas::Yes);
    std::string out = fmt::format("search:\n  objective: {}\n", name_of(search.objective));
    if (wants_all_schedules(search))
        out += fmt::format("  schedules: {}\n", kAllSchedules);
    else if (!schedules.empty())
        out += fmt::format("  schedules: [{}]\n", fmt::join(schedules, ", "));
    if (!search.micro_batch_sizes.empty())
        out += fmt::format("  micro_batch_sizes: [{}]\n", fmt::join(search.micro_batch_sizes, ", "));
    out += fmt::format("  mini_batch: {}\n", search.mini_batch);
    if (!search.stages.empty())
        out += fmt::format("  stages: [{}]\n", fmt::join(search.stages, ", "));
    out += fmt::format("  replicas: {}\n  recompute: {}\n  tensor_parallel: {}\n", replicas, name_of(search.recompute),
                       search.tensor_parallel);
    if (search.profile_batch > 0)
        out += fmt::format("  profile_batch: {}\n", search.profile_batch);
    out += fmt::format("  p2p: {}\n  straight: {}\n  memory_limit: {}\n", name_of(search.p2p), search.straight,
                       search.memory_limit);
    if (!levels.empty())
        out += fmt::format("  levels: [{}]\n", fmt::join(levels, ", "));
    return out;
}

}  // namespace pw

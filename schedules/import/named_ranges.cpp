#include "schedules/import/named_ranges.h"

#include "schedules/import/recorded_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

bool has_number(const NamedRange& range) { return range.named.microbatch.has_value(); }

void leave_out_unnumbered(std::vector<NamedRange>& ranges) {
    std::set<std::size_t> numbered;  // files
    for (const NamedRange& range : ranges)
        if (has_number(range))
            numbered.insert(range.file);
    std::erase_if(ranges, [&](const NamedRange& range) { return !has_number(range) && numbered.contains(range.file); });
}

// Returns the device of each range: a number for each rank, process or thread.
std::vector<int> devices_of(const std::vector<NamedRange>& ranges) {
    const auto rank_of = [](const NamedRange& range) {
        return range.named.rank ? number_as_text(static_cast<std::uint64_t>(*range.named.rank)) : "";
    };
    std::set<std::string> ranks, processes, threads;
    for (const NamedRange& range : ranges) {
        ranks.insert(rank_of(range));
        processes.insert(range.process);
        threads.insert(range.thread);
    }
    const bool by_rank = !ranks.contains(""), by_process = processes.size() > 1;
    const std::set<std::string>& names = by_rank ? ranks : by_process ? processes : threads;
    std::vector<int> devices;
    for (const NamedRange& range : ranges) {
        const std::string name = by_rank ? rank_of(range) : by_process ? range.process : range.thread;
        devices.push_back(static_cast<int>(std::distance(names.begin(), names.find(name))));
    }
    return devices;
}

}  // namespace

std::string number_as_text(std::uint64_t number) { return fmt::format("{:020}", number); }

Trace trace_of_ranges(const std::vector<std::string>& paths, std::vector<NamedRange> ranges,
                      std::vector<std::string>& notes) {
    leave_out_unnumbered(ranges);
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const NamedRange& a, const NamedRange& b) { return a.start < b.start; });
    const std::vector<int> devices = devices_of(ranges);
    std::map<int, RecordedRank> by_device;
    for (std::size_t k = 0; k < ranges.size(); ++k) {
        const NamedTask& named = ranges[k].named;
        RecordedRank& rank = by_device[devices[k]];
        rank.path = paths[ranges[k].file];
        rank.rank = devices[k];
        if (rank.host.empty())
            rank.host = ranges[k].host;
        rank.tasks.push_back({Task{*named.op, named.stage.value_or(devices[k]), named.microbatch.value_or(kNotNamed)},
                              ranges[k].start, ranges[k].end, named.step.value_or(0), named.chunk.value_or(-1)});
    }
    std::vector<RecordedRank> ranks;
    for (auto& [device, rank] : by_device)
        ranks.push_back(std::move(rank));
    const bool has_steps =
        std::all_of(ranges.begin(), ranges.end(), [](const NamedRange& range) { return range.named.step; });
    complete_names(ranks, has_steps, notes);
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

}  // namespace pw

#include "report/host_times.h"

#include "report/table.h"
#include "schedules/trace/device_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace pw {

namespace {

constexpr double kSlowHost = 1.05;
constexpr std::size_t kLeastTimes = 4;

// The times of a stage on a device, ascending.
struct StageTimes {
    int device = 0, stage = 0, host = 0;
    std::vector<Ns> times = {};

    // Quartiles by the nearest rank.
    Ns lower() const { return times[(times.size() - 1) / 4]; }
    Ns median() const { return times[(times.size() - 1) / 2]; }
    Ns upper() const { return times[(3 * times.size() - 1) / 4]; }
};
using StagePointers = std::vector<const StageTimes*>;

std::vector<StageTimes> times_of_stages(const Trace& trace, const std::vector<int>& host_of) {
    int first = trace.events.front().step, last = first;
    for (const TraceEvent& event : trace.events) {
        first = std::min(first, event.step);
        last = std::max(last, event.step);
    }
    const bool all_count = trace.asynchronous || first == last;
    std::map<std::tuple<int, int, int, int>, Ns> sums;  // device, stage, step, micro-batch
    const std::vector<Ns> own = own_times(trace.events);
    for (std::size_t k = 0; k < own.size(); ++k)
        if (const TraceEvent& event = trace.events[k]; is_compute(event.task.op) && (all_count || event.step != first))
            sums[{event.device, event.task.stage, event.step, event.task.whole()}] += own[k];
    std::vector<StageTimes> all;
    for (const auto& [key, time] : sums) {
        const auto& [device, stage, step, microbatch] = key;
        if (all.empty() || all.back().device != device || all.back().stage != stage)
            all.push_back({device, stage, host_of[static_cast<std::size_t>(device)]});
        all.back().times.push_back(time);
    }
    for (StageTimes& one : all)
        std::sort(one.times.begin(), one.times.end());
    return all;
}

StageTimes together(const StagePointers& parts) {
    StageTimes all;
    for (const StageTimes* part : parts)
        all.times.insert(all.times.end(), part->times.begin(), part->times.end());
    std::sort(all.times.begin(), all.times.end());
    return all;
}

bool has_stage(const StagePointers& list, int stage) {
    return std::any_of(list.begin(), list.end(), [&](const StageTimes* one) { return one->stage == stage; });
}

bool is_above(const StageTimes& own, const StageTimes& other) {
    return own.times.size() >= kLeastTimes && other.times.size() >= kLeastTimes &&
           static_cast<double>(own.lower()) > kSlowHost * static_cast<double>(other.upper());
}

// Compares the stages of a host with comparable stages of other hosts.
void compare_host(const StagePointers& own, const StagePointers& elsewhere, HostTimes& host) {
    const auto shared =
        std::count_if(own.begin(), own.end(), [&](const StageTimes* one) { return has_stage(elsewhere, one->stage); });
    host.same_stages = shared == std::ssize(own);
    if (elsewhere.empty() || (!host.same_stages && (shared > 0 || host.devices.size() < 2)))
        return;
    host.is_slow = std::all_of(own.begin(), own.end(), [&](const StageTimes* one) {
        return std::all_of(elsewhere.begin(), elsewhere.end(), [&](const StageTimes* other) {
            return (host.same_stages && one->stage != other->stage) || is_above(*one, *other);
        });
    });
    if (!host.is_slow)
        return;
    StagePointers others;
    std::copy_if(elsewhere.begin(), elsewhere.end(), std::back_inserter(others),
                 [&](const StageTimes* other) { return !host.same_stages || has_stage(own, other->stage); });
    if (const Ns median = together(others).median(); median > 0)
        host.more = static_cast<double>(host.median) / static_cast<double>(median) - 1;
}

std::string numbers_of(const std::vector<int>& devices) {
    std::vector<std::string> parts;
    for (std::size_t k = 0, end = 0; k < devices.size(); k = end) {
        for (end = k + 1; end < devices.size() && devices[end] == devices[end - 1] + 1;)
            ++end;
        parts.push_back(end - k > 2
                            ? fmt::format("{} to {}", devices[k], devices[end - 1])
                            : fmt::format("{}", fmt::join(devices.begin() + static_cast<std::ptrdiff_t>(k),
                                                          devices.begin() + static_cast<std::ptrdiff_t>(end), ", ")));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<HostTimes> times_of_hosts(const Trace& trace) {
    const DeviceGroups groups = hosts_of_devices(trace);
    std::vector<HostTimes> hosts;
    if (groups.names.size() < 2 || trace.events.empty())
        return hosts;
    for (const std::string& name : groups.names)
        hosts.push_back({name, {}});
    for (int device = 0; device < trace.devices; ++device)
        hosts[static_cast<std::size_t>(groups.of[static_cast<std::size_t>(device)])].devices.push_back(device);
    const std::vector<StageTimes> all = times_of_stages(trace, groups.of);
    for (std::size_t number = 0; number < hosts.size(); ++number) {
        StagePointers own, elsewhere;
        for (const StageTimes& one : all)
            (one.host == static_cast<int>(number) ? own : elsewhere).push_back(&one);
        if (own.empty())  // a host whose devices compute nothing
            continue;
        const StageTimes times = together(own);
        hosts[number].lower = times.lower();
        hosts[number].median = times.median();
        hosts[number].upper = times.upper();
        compare_host(own, elsewhere, hosts[number]);
    }
    return hosts;
}

std::string words_on_hosts(const std::vector<HostTimes>& hosts) {
    std::string text;
    for (const HostTimes& host : hosts)
        if (host.is_slow && host.same_stages)
            text += fmt::format(
                "The host '{}' is slow: its stages take {} longer for a micro-batch than the same stages elsewhere.\n",
                host.host, print_percent(host.more));
        else if (host.is_slow)
            text += fmt::format(
                "The host '{}' is slow, or its stages have more layers: all of them take longer than every stage "
                "elsewhere, "
                "{} longer in the median.\n",
                host.host, print_percent(host.more));
    if (text.empty() && !hosts.empty())
        text = fmt::format("None of {} hosts is told apart as slow.\n", hosts.size());
    return text;
}

std::vector<std::vector<std::string>> rows_of(const std::vector<HostTimes>& hosts) {
    std::vector<std::vector<std::string>> rows = {
        {"host", "devices", "stage for a micro-batch", "half of them take", "slow"}};
    for (const HostTimes& host : hosts)
        rows.push_back({host.host, numbers_of(host.devices), print_time(host.median),
                        fmt::format("{} to {}", print_time(host.lower), print_time(host.upper)),
                        host.is_slow ? fmt::format("by {}", print_percent(host.more)) : "-"});
    return rows;
}

Json to_json(const std::vector<HostTimes>& hosts) {
    Json rows = Json::array();
    for (const HostTimes& host : hosts) {
        Json row = {{"host", host.host},
                    {"devices", host.devices},
                    {"micro_batch_ns", {{"p25", host.lower}, {"p50", host.median}, {"p75", host.upper}}},
                    {"slow", host.is_slow}};
        if (host.is_slow)
            row.update({{"more", host.more}, {"same_stages", host.same_stages}});
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace pw

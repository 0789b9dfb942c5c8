#include "exec/all_ranks.h"

#include "exec/engine/machine.h"
#include "exec/engine/progress_monitor.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/measuring/profile.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/shared_failure.h"
#include "exec/ranks/watchdog.h"
#include "job/launched_ranks.h"
#include "workloads/process.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace pw {

namespace {

std::shared_ptr<Ranks> ranks_of(const Setup& setup) {
    return ranks_of_process(setup.run.transport == RunConfig::Transport::Mpi);
}

// Calls `act` with the ranks, and with their failure if there are several.
void with_joined_ranks(Ns timeout, const std::function<void(Ranks&, const SharedFailure*)>& act) {
    const std::string text = fmt::format("the other ranks have not joined within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch(std::in_place, timeout, text);
    Ranks& ranks = join_ranks();
    if (ranks.size() == 1) {
        until_all_watch.reset();
        return act(ranks, nullptr);
    }
    until_all_watch.emplace(2 * timeout, text);  // rank 0 names a rank that does not connect within `timeout`
    SharedFailure failure(ranks, [] {});
    // The connection carries heartbeats and failures only.
    failure.open_control_connection(timeout, ProgressMonitor::check_interval(timeout),
                                    {.write_activity = [](Message&) {},
                                     .read_activity = [](MessageReader&) {},
                                     .check = [](Ns) {},
                                     .describe = [](int rank) { return fmt::format("rank {}", rank); },
                                     .last_tasks = [](int) { return std::string(); },
                                     .fail = {}});
    until_all_watch.reset();
    failure.guard([&] { act(ranks, &failure); });
    failure.rethrow();
    failure.leave();
}

// Returns where a rank is among all ranks and on its host, without its functions.
ComputingRanks place_of(Ranks& ranks) {
    const std::vector<UsableCore> usable = usable_cores();
    Message own;
    write_text(own, host_name());
    const std::size_t name = own.size();
    for (const UsableCore& core : usable)
        write(own, core.number);
    ComputingRanks place{.rank = ranks.rank(), .size = ranks.size(), .on_host = 0};
    int sharing = 0;
    for (const Message& other : all_gather(ranks, own)) {
        place.on_host += std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(name), other.begin(),
                                    other.begin() + static_cast<std::ptrdiff_t>(std::min(name, other.size())))
                             ? 1
                             : 0;
        sharing += other == own ? 1 : 0;
    }
    place.cores = std::max(1, static_cast<int>(usable.size()) / sharing);
    return place;
}

}  // namespace

void with_all_ranks(const Setup& setup, const std::function<void()>& act) {
    if (setup.run.transport != RunConfig::Transport::Mpi)
        return act();
    with_joined_ranks(setup.run.timeout, [&](Ranks&, const SharedFailure*) { act(); });
}

void with_computing_ranks(Ns timeout, const std::function<void(const ComputingRanks&)>& act) {
    if (launched_ranks().size == 1)  // without hwloc, whose plugins load a dozen libraries
        return act({.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))});
    with_joined_ranks(timeout, [&](Ranks& ranks, const SharedFailure* failure) {
        ComputingRanks own = place_of(ranks);
        own.exchange = [&ranks](const Message& message) { return all_gather(ranks, message); };
        own.has_failed = [failure] { return failure != nullptr && failure->happened(); };
        act(own);
    });
}

void wait_for_first_rank(const Setup& setup) { wait_for_first(*ranks_of(setup)); }

Profile profile_of_first_rank(const Setup& setup, const std::function<Profile()>& measure) {
    const std::shared_ptr<Ranks> ranks = ranks_of(setup);
    const bool is_first = ranks->rank() == 0;
    Profile profile;
    Message message;
    if (is_first) {
        profile = measure();
        write_text(message, text_of(profile));
    } else {
        help_to_measure(setup);
    }
    wait_for_first(*ranks);
    message = broadcast(*ranks, message);
    return is_first ? profile : profile_in(MessageReader(message).read_text());
}

void take_hosts_of_ranks(Setup& setup) {
    const std::shared_ptr<Ranks> ranks = ranks_of(setup);
    std::vector<DeviceConfig>& devices = setup.cluster.devices;
    const RankMap map(static_cast<int>(devices.size()), *ranks);
    check_number(setup, static_cast<int>(devices.size()), *ranks);
    Message own;
    write_text(own, host_name());
    const std::vector<Message> hosts = all_gather(*ranks, own);
    const auto is_named = [](const DeviceConfig& device) { return !device.host.empty(); };
    if (setup.cluster.link_given || std::ranges::any_of(devices, is_named) ||
        std::ranges::all_of(hosts, [&](const Message& host) { return host == own; }))
        return;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const int rank = map.rank_of(static_cast<int>(device));
        devices[device].host = MessageReader(hosts[static_cast<std::size_t>(rank)]).read_text();
    }
    setup.yaml = print_setup(setup);
}

}  // namespace pw

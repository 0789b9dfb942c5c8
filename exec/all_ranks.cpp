#include "exec/all_ranks.h"

#include "exec/engine/ranks_of_run.h"
#include "exec/engine/progress_monitor.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/shared_failure.h"
#include "exec/ranks/watchdog.h"
#include "workloads/process.h"

#include <algorithm>
#include <optional>

namespace pw {

namespace {

// Null where all devices are in this process.
Ranks* ranks_of(const Config& config) {
    if (config.run.transport != RunConfig::Transport::Mpi || join_ranks().size() == 1)
        return nullptr;
    return &join_ranks();
}

}  // namespace

void with_all_ranks(const Config& config, const std::function<void()>& act) {
    if (config.run.transport != RunConfig::Transport::Mpi)
        return act();
    const Ns timeout = config.run.timeout;
    const std::string text = fmt::format("the other ranks have not come within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch(std::in_place, timeout, text);
    Ranks& ranks = join_ranks();
    if (ranks.size() == 1) {
        until_all_watch.reset();
        return act();
    }
    until_all_watch.emplace(2 * timeout, text);  // who does not call within one is named by rank 0
    SharedFailure failure(&ranks, [] {});
    // On its line nothing is said but that the ranks are there, and who has failed.
    failure.open_line(timeout, Watch::slice_of(timeout),
                      {.tell_signs = [](Mail&) {},
                       .hear_signs = [](MailReader&) {},
                       .look = [](Ns) {},
                       .describe = [](int rank) { return fmt::format("rank {}", rank); },
                       .last_tasks = [](int) { return std::string(); },
                       .fail = {}});
    until_all_watch.reset();
    failure.guard(act);
    failure.rethrow();
    failure.leave();
}

void wait_for_first_rank(const Config& config) {
    if (Ranks* const ranks = ranks_of(config))
        wait_for_first(*ranks);
}

Profile profile_of_first_rank(const Config& config, const std::function<Profile()>& measure) {
    Ranks* const ranks = ranks_of(config);
    if (ranks == nullptr)
        return measure();
    const bool is_first = ranks->rank() == 0;
    Profile profile;
    Mail letter;
    if (is_first) {
        profile = measure();
        put_text(letter, text_of(profile));
    } else {
        help_to_measure(config);
    }
    wait_for_first(*ranks);
    letter = broadcast(*ranks, letter);
    return is_first ? profile : profile_in(MailReader(letter).get_text());
}

void take_hosts_of_ranks(Config& config) {
    Ranks* const ranks = ranks_of(config);
    if (ranks == nullptr)
        return;
    std::vector<DeviceConfig>& devices = config.cluster.devices;
    const RankMap map(static_cast<int>(devices.size()), *ranks);
    check_number(config, static_cast<int>(devices.size()), *ranks);
    Mail own;
    put_text(own, host_name());
    const std::vector<Mail> hosts = all_gather(*ranks, own);
    const auto is_named = [](const DeviceConfig& device) { return !device.host.empty(); };
    if (config.cluster.link_given || std::ranges::any_of(devices, is_named) ||
        std::ranges::all_of(hosts, [&](const Mail& host) { return host == own; }))
        return;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const int rank = map.rank_of(static_cast<int>(device));
        devices[device].host = MailReader(hosts[static_cast<std::size_t>(rank)]).get_text();
    }
    config.yaml = print_config(config);
}

}  // namespace pw

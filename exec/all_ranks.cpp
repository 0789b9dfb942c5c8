#include "exec/all_ranks.h"

#include "exec/engine/progress_monitor.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/measuring/profile.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/shared_failure.h"
#include "exec/ranks/watchdog.h"
#include "workloads/process.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace pw {

namespace {

std::shared_ptr<Ranks> ranks_of(const Config& config) {
    return ranks_of_process(config.run.transport == RunConfig::Transport::Mpi);
}

}  // namespace

void with_all_ranks(const Config& config, const std::function<void()>& act) {
    if (config.run.transport != RunConfig::Transport::Mpi)
        return act();
    const Ns timeout = config.run.timeout;
    const std::string text = fmt::format("the other ranks have not joined within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch(std::in_place, timeout, text);
    Ranks& ranks = join_ranks();
    if (ranks.size() == 1) {
        until_all_watch.reset();
        return act();
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
    failure.guard(act);
    failure.rethrow();
    failure.leave();
}

void wait_for_first_rank(const Config& config) { wait_for_first(*ranks_of(config)); }

Profile profile_of_first_rank(const Config& config, const std::function<Profile()>& measure) {
    const std::shared_ptr<Ranks> ranks = ranks_of(config);
    const bool is_first = ranks->rank() == 0;
    Profile profile;
    Message message;
    if (is_first) {
        profile = measure();
        write_text(message, text_of(profile));
    } else {
        help_to_measure(config);
    }
    wait_for_first(*ranks);
    message = broadcast(*ranks, message);
    return is_first ? profile : profile_in(MessageReader(message).read_text());
}

void take_hosts_of_ranks(Config& config) {
    const std::shared_ptr<Ranks> ranks = ranks_of(config);
    std::vector<DeviceConfig>& devices = config.cluster.devices;
    const RankMap map(static_cast<int>(devices.size()), *ranks);
    check_number(config, static_cast<int>(devices.size()), *ranks);
    Message own;
    write_text(own, host_name());
    const std::vector<Message> hosts = all_gather(*ranks, own);
    const auto is_named = [](const DeviceConfig& device) { return !device.host.empty(); };
    if (config.cluster.link_given || std::ranges::any_of(devices, is_named) ||
        std::ranges::all_of(hosts, [&](const Message& host) { return host == own; }))
        return;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const int rank = map.rank_of(static_cast<int>(device));
        devices[device].host = MessageReader(hosts[static_cast<std::size_t>(rank)]).read_text();
    }
    config.yaml = print_config(config);
}

}  // namespace pw

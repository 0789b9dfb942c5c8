#include "job/config/rank_table.h"

#include "workloads/text/yaml.h"

#include <algorithm>
#include <map>
#include <set>

namespace pw {
namespace {

constexpr int kMostRanks = 65'536;
constexpr int kDevicesOfAServer = 8;

struct Rank {
    Yaml at;  // the key that declares it
    int number;
    std::string server, device;
};

Yaml required(const Yaml& at, std::string_view key) {
    if (!at[key].present())
        at.complain(fmt::format("'{}' is missing", at[key].path()), "use the whole table as its tool wrote it");
    return at[key];
}

std::vector<Yaml> entries_of(const Yaml& list) {
    if (list.is_list() && list.items().empty())
        list.complain(fmt::format("'{}' is empty", list.path()), "use the whole table as its tool wrote it");
    return list.present() ? list.items() : std::vector<Yaml>{};
}

// Checks a count of the table, if it is there.
void check_count(const Yaml& count, std::size_t found, const std::string& what) {
    if (!count.present())
        return;
    const std::int64_t value = count.integer(static_cast<std::int64_t>(found), 0, kMostRanks);
    if (value != static_cast<std::int64_t>(found))
        count.complain(fmt::format("'{}' is {}, but the table has {} {}", count.path(), value, found, what),
                       "make both the same; part of the table may be missing");
}

Rank read_rank(const Yaml& at, const Yaml& device, const std::string& server) {
    const auto number = static_cast<int>(required(at, "rank_id").integer(-1, 0, kMostRanks - 1));
    return {at["rank_id"], number, server, required(device, "device_id").text()};
}

// {server_list: [{server_id, device: [{device_id, rank_id}]}]}
std::vector<Rank> read_servers(const Yaml& root) {
    std::vector<Rank> ranks;
    const std::vector<Yaml> servers = entries_of(root["server_list"]);
    std::set<std::string> names;
    for (const Yaml& server : servers) {
        const std::string name = required(server, "server_id").text();
        if (!names.insert(name).second)
            server["server_id"].complain(fmt::format("two servers are called '{}'", name),
                                         "give each its own server_id");
        for (const Yaml& device : entries_of(required(server, "device")))
            ranks.push_back(read_rank(device, device, name));
    }
    check_count(root["server_count"], servers.size(), "servers");
    return ranks;
}

// {devices: [{device_id}], rank_id, server_id}
void read_instance(const Yaml& instance, std::vector<Rank>& ranks) {
    const std::vector<Yaml> devices = entries_of(required(instance, "devices"));
    if (devices.size() > 1)
        instance["devices"].complain(fmt::format("'{}' has {} devices", instance["devices"].path(), devices.size()),
                                     "a rank is one device: write an instance for each");
    if (!devices.empty())
        ranks.push_back(read_rank(instance, devices.front(), required(instance, "server_id").text()));
}

std::size_t servers_of(const std::vector<Rank>& ranks) {
    std::set<std::string> servers;
    for (const Rank& rank : ranks)
        servers.insert(rank.server);
    return servers.size();
}

// {group_list: [{instance_list: [...]}]}
std::vector<Rank> read_groups(const Yaml& root) {
    std::vector<Rank> ranks;
    const std::vector<Yaml> groups = entries_of(root["group_list"]);
    for (const Yaml& group : groups) {
        const std::vector<Yaml> instances = entries_of(required(group, "instance_list"));
        std::vector<Rank> own;
        for (const Yaml& instance : instances)
            read_instance(instance, own);
        check_count(group["instance_count"], instances.size(), "instances");
        check_count(group["device_num"], own.size(), "devices");
        check_count(group["server_num"], servers_of(own), "servers");
        ranks.insert(ranks.end(), own.begin(), own.end());
    }
    check_count(root["group_count"], groups.size(), "groups");
    const std::size_t devices = ranks.size();
    if (devices != 0 && devices != 1 && devices != 2 && devices != 4 && devices % kDevicesOfAServer != 0)
        root["group_list"].complain(fmt::format("a table of this form has {} devices", devices),
                                    "it may have 1, 2, 4, 8 or a multiple of 8");
    return ranks;
}

void check_status(const Yaml& status) {
    if (status.present() && status.text() != "completed")
        status.complain(fmt::format("'status' is '{}'", status.text()), "wait until the table is completed");
}

// Checks that the ranks are 0, 1, .. and that no device has two.
std::vector<std::string> by_rank(const std::vector<Rank>& ranks) {
    std::vector<std::string> servers(ranks.size());
    std::set<int> numbers;
    std::map<std::pair<std::string, std::string>, int> holder;
    for (const Rank& rank : ranks) {
        if (rank.number < 0)
            continue;  // a mistake already noted
        if (rank.number >= static_cast<int>(ranks.size()))
            rank.at.complain(
                fmt::format("'{}' is {}, but the table has {} devices", rank.at.path(), rank.number, ranks.size()),
                fmt::format("number the ranks 0 to {}, each once", ranks.size() - 1));
        else if (!numbers.insert(rank.number).second)
            rank.at.complain(fmt::format("rank {} is listed twice", rank.number),
                             fmt::format("number the ranks 0 to {}, each once", ranks.size() - 1));
        else
            servers[static_cast<std::size_t>(rank.number)] = rank.server;
        const auto [known, fresh] = holder.try_emplace({rank.server, rank.device}, rank.number);
        if (!fresh)
            rank.at.complain(fmt::format("device {} of server '{}' is rank {} and rank {}", rank.device, rank.server,
                                         known->second, rank.number),
                             "give each rank its own device");
    }
    return servers;
}

}  // namespace

std::vector<std::string> read_rank_table(const std::string& path) {
    const Yaml root = Yaml::load(path);
    std::vector<std::string> servers;
    if (root["server_list"].present())
        servers = by_rank(read_servers(root));
    else if (root["group_list"].present())
        servers = by_rank(read_groups(root));
    else
        root.complain("a rank table has 'server_list' or 'group_list'; this file has neither",
                      "correct cluster.rank_table");
    check_status(root["status"]);
    root.source().throw_if_mistaken();
    return servers;
}

}  // namespace pw

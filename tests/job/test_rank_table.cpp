// Rank tables of both forms as devices of a cluster, and the errors of broken ones.
#include "job/config/config.h"
#include "job/config/rank_table.h"
#include "job/load.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

using Servers = std::vector<std::string>;

// Two servers, ranks out of order.
constexpr const char* kTable = R"({"status":"completed","version":"1.0","server_count":"2","server_list":[
  {"server_id":"node_0","device":[{"device_id":"0","device_ip":"192.168.1.8","rank_id":"2"},
                                  {"device_id":"1","device_ip":"192.168.1.9","rank_id":"0"}]},
  {"server_id":"node_1","host_nic_ip":"reserve","device":[{"device_id":"0","device_ip":"192.168.2.8","rank_id":"1"}]}]}
)";

// Rank k is device k of the server k / 8.
std::string instance(int rank) {
    return fmt::format(
        "\t{{\"devices\": [{{\"device_id\": \"{}\", \"device_ip\": \"192.1.{}.{}\"}}], \"rank_id\": \"{}\", "
        "\"server_id\": \"10.155.111.{}\"}}",
        rank % 8, rank / 8, rank % 8, rank, rank / 8);
}

std::string old_table(int devices) {
    std::string instances;
    for (int rank = devices; rank-- > 0;)
        instances += instance(rank) + (rank > 0 ? ",\n" : "\n");
    return fmt::format(
        R"({{"board_id": "0x0000", "chip_info": "910", "deploy_mode": "lab", "group_count": "1",
  "group_list": [{{"device_num": "{0}", "server_num": "{1}", "group_name": "", "instance_count": "{0}",
  "instance_list": [
{2}]}}],
  "para_plane_nic_location": "device", "para_plane_nic_name": ["eth0", "eth1"], "para_plane_nic_num": "{0}",
  "status": "completed"}})",
        devices, (devices + 7) / 8, instances);
}

Servers read(const std::string& text) {
    const TemporaryFolder folder;
    return read_rank_table(folder.write("ranks.json", text));
}

TEST(RankTable, ServersInTheOrderOfTheRanks) { EXPECT_EQ(read(kTable), (Servers{"node_0", "node_1", "node_0"})); }

TEST(RankTable, OldForm) {
    for (const int devices : {1, 2, 4, 8, 16, 24}) {
        const Servers servers = read(old_table(devices));
        ASSERT_EQ(std::ssize(servers), devices);
        for (int rank = 0; rank < devices; ++rank)
            EXPECT_EQ(servers[static_cast<std::size_t>(rank)], fmt::format("10.155.111.{}", rank / 8));
    }
}

TEST(RankTable, OldFormHasOneServerOrWholeOnes) {
    for (const int devices : {3, 5, 6, 7, 9, 12})
        expect_says(refusal([&] { read(old_table(devices)); }),
                    {fmt::format("a table of this form has {} devices", devices), "1, 2, 4, 8 or a multiple of 8"});
}

TEST(RankTable, NumbersMayBeNumbers) {
    EXPECT_EQ(read(R"({"server_list": [{"server_id": "a", "device": [{"device_id": 3, "rank_id": 0}]}]})"),
              Servers{"a"});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

struct BadTable {
    std::string text;
    std::vector<std::string> says;
};
void PrintTo(const BadTable& broken, std::ostream* out) { *out << broken.says[0]; }
class BrokenRankTable : public testing::TestWithParam<BadTable> {};
TEST_P(BrokenRankTable, IsRefusedWithPlaceAndHelp) {
    const std::string message = refusal([&] { read(GetParam().text); });
    expect_says(message, GetParam().says);
    expect_says(message, {"ranks.json:", "help: "});
}

INSTANTIATE_TEST_SUITE_P(
    Grid, BrokenRankTable,
    testing::Values(
        BadTable{"", {"'server_list' or 'group_list'"}}, BadTable{"[]", {"'server_list' or 'group_list'"}},
        BadTable{"{}", {"'server_list' or 'group_list'"}}, BadTable{std::string(kTable).substr(0, 200), {"not YAML"}},
        BadTable{R"({"server_list": []})", {"'server_list' is empty"}},
        BadTable{R"({"server_list": "node_0"})", {"'server_list' must be a list"}},
        BadTable{R"({"server_list": [7]})",
                 {"'server_list[0].server_id' is missing", "'server_list[0].device' is missing"}},
        BadTable{R"({"server_list": [{"server_id": "a", "device": []}]})", {"'server_list[0].device' is empty"}},
        BadTable{R"({"server_list": [{"server_id": "a", "device": [{}]}]})",
                 {"'server_list[0].device[0].rank_id' is missing", "'server_list[0].device[0].device_id' is missing"}},
        BadTable{replaced(kTable, R"("rank_id":"1")", R"("rank_id":"one")"), {"is 'one', which is no whole number"}},
        BadTable{replaced(kTable, R"("rank_id":"1")", R"("rank_id":"-1")"), {"is -1"}},
        BadTable{replaced(kTable, R"("rank_id":"1")", R"("rank_id":"99999999999999999999")"), {"it is too large"}},
        BadTable{replaced(kTable, R"("rank_id":"1")", R"("rank_id":"3")"),
                 {"is 3, but the table has 3 devices", "0 to 2, each once"}},
        BadTable{replaced(kTable, R"("rank_id":"1")", R"("rank_id":"2")"), {"rank 2 is listed twice", ":4:"}},
        BadTable{replaced(kTable, R"("device_id":"1")", R"("device_id":"0")"),
                 {"device 0 of server 'node_0' is rank 2 and rank 0", "its own device"}},
        BadTable{replaced(kTable, "node_1", "node_0"), {"two servers are called 'node_0'"}},
        BadTable{replaced(kTable, R"("server_count":"2")", R"("server_count":"3")"),
                 {"'server_count' is 3, but the table has 2 servers"}},
        BadTable{replaced(kTable, "completed", "initializing"), {"'status' is 'initializing'", "completed"}},
        BadTable{replaced(old_table(8), R"("device_num": "8")", R"("device_num": "16")"),
                 {"'group_list[0].device_num' is 16, but the table has 8 devices"}},
        BadTable{replaced(old_table(8), R"("server_num": "1")", R"("server_num": "2")"), {"has 1 servers"}},
        BadTable{replaced(old_table(8), R"("instance_count": "8")", R"("instance_count": "7")"), {"has 8 instances"}},
        BadTable{replaced(old_table(8), R"("group_count": "1")", R"("group_count": "2")"), {"has 1 groups"}},
        BadTable{replaced(old_table(2), R"({"device_id": "1",)", R"({"device_id": "5"}, {"device_id": "1",)"),
                 {"has 2 devices", "a rank is one device"}},
        BadTable{replaced(old_table(2), R"("rank_id": "1")", R"("rank": "1")"),
                 {"'group_list[0].instance_list[0].rank_id' is missing"}}),
    [](const auto& test) { return fmt::format("Nr{}", test.index); });

// Every proper prefix of a table is refused.
TEST(BrokenRankTable, EveryPrefixIsRefused) {
    for (const std::string& table : {std::string(kTable), old_table(2)})
        for (std::size_t length = 0; length < table.find_last_of('}'); length += 7)
            refusal([&] { read(table.substr(0, length)); });
}

Config configured(const std::string& table, const std::string& rest) {
    const TemporaryFolder folder;
    folder.write("ranks.json", table);
    return load_config(folder.write("cfg.yaml", "workload: {model: uniform}\n" + rest), {});
}

TEST(RankedCluster, DevicesAreNamedByTheirRanks) {
    const Config config = configured(kTable, "cluster: {rank_table: ranks.json, memory: 16 GiB}\n");
    ASSERT_EQ(config.cluster.devices.size(), 3U);
    EXPECT_EQ(config.pipeline.stages, 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        const DeviceConfig& device = config.cluster.devices[rank];
        EXPECT_EQ(device.name, fmt::format("rank {}", rank));
        EXPECT_EQ(device.memory, Bytes{16} << 30);
        EXPECT_EQ(device.speed, 1);
        EXPECT_EQ(device.host, rank == 1 ? "node_1" : "node_0");
    }
}

TEST(RankedCluster, DevicesMayAddTheRest) {
    const Config config = configured(
        kTable, "cluster: {rank_table: ranks.json, devices: [{name: a, speed: 2}, {host: node_1}, {memory: 1 GiB}]}\n");
    const std::vector<DeviceConfig>& devices = config.cluster.devices;
    EXPECT_EQ(devices[0].name, "a");
    EXPECT_EQ(devices[0].speed, 2);
    EXPECT_EQ(devices[1].name, "rank 1");
    EXPECT_EQ(devices[2].memory, Bytes{1} << 30);
    EXPECT_EQ(devices[2].host, "node_0");
}

// The printed configuration reads back to the same devices.
TEST(RankedCluster, PrintsAndReads) {
    const TemporaryFolder folder;
    folder.write("ranks.json", old_table(8));
    const std::string text =
        "workload: {model: uniform}\ncluster: {rank_table: ranks.json}\npipeline: {replicas: [4, 4]}\n";
    const Config config = load_config(folder.write("cfg.yaml", text), {});
    EXPECT_EQ(config.cluster.devices.size(), 8U);
    EXPECT_EQ(load_config(folder.write("again.yaml", config.yaml), {}).yaml, config.yaml);
}

TEST(RankedCluster, MustAgreeWithTheOtherKeys) {
    const auto message = [](const std::string& rest) { return refusal([&] { configured(kTable, rest); }); };
    expect_says(message("cluster: {rank_table: ranks.json, devices: 2}\n"),
                {"cfg.yaml:2:44", "'cluster.devices' is 2, but the rank table has 3 devices", "write 3"});
    expect_says(message("cluster: {rank_table: ranks.json, devices: [{}, {host: node_0}, {}]}\n"),
                {"device 1 is on 'node_0', but the rank table puts rank 1 on 'node_1'"});
    expect_says(message("cluster: {rank_table: none.json}\n"), {"cfg.yaml:2:23", "there is no file"});
    expect_says(message("cluster: {rank_table: ranks.json}\npipeline: {replicas: [2, 2]}\n"),
                {"'pipeline.replicas' makes 4 devices, but the rank table has 3"});
}

}  // namespace
}  // namespace pw

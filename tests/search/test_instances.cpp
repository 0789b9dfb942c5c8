// Instance files: read as written, refused with the place and the fact.
#include "search/piper/piper_instance.h"
#include "search/placement/placement_instance.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

using namespace pw;

TEST(PlacementInstance, IsReadAsWritten) {
    const PlacementInstance instance = parse_placement_instance(R"({"maxSizePerFPGA": 8.0, "maxFPGAs": 2, "maxCPUs": 1,
        "nodes": [{"id": 7, "name": "a", "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 0.5, "size": 3,
                   "isBackwardNode": false, "colorClass": 4},
                  {"id": 2, "supportedOnFpga": false, "cpuLatency": 1, "fpgaLatency": 0, "isBackwardNode": 1}],
        "edges": [{"sourceId": 7, "destId": 2, "cost": 0.25}]})",
                                                                "small.json");
    EXPECT_EQ(instance.accelerators, 2);
    EXPECT_EQ(instance.cpus, 1);
    EXPECT_EQ(instance.memory, 8);
    ASSERT_EQ(instance.nodes.size(), 2u);
    EXPECT_EQ(instance.nodes[0].name, "a");
    EXPECT_EQ(instance.nodes[0].transfer_time, 0.25);
    EXPECT_EQ(instance.nodes[0].colour, 4);
    EXPECT_EQ(instance.nodes[1].name, "node 2");
    EXPECT_TRUE(instance.nodes[1].backward);
    EXPECT_FALSE(instance.nodes[1].on_accelerator);
    EXPECT_EQ(instance.edges[0].from, 0);
    EXPECT_EQ(instance.edges[0].to, 1);
}

TEST(PlacementInstance, RefusesWhatItCannotMean) {
    const auto said_of = [](const std::string& nodes, const std::string& edges) {
        const std::string text = R"({"maxSizePerFPGA": 8, "maxFPGAs": 2, "maxCPUs": 0, "nodes": [)" + nodes +
                                 R"(], "edges": [)" + edges + "]}";
        return refusal([&] { parse_placement_instance(text, "bad.json"); });
    };
    const auto node = [](const std::string& id, const std::string& backward = "0", const std::string& time = "1") {
        return R"({"id": )" + id + R"(, "supportedOnFpga": 1, "cpuLatency": 1, "fpgaLatency": )" + time +
               R"(, "isBackwardNode": )" + backward + "}";
    };
    expect_says(said_of("", ""), {"bad.json", "nodes is empty"});
    expect_says(said_of(node("1", "0", "-1"), ""), {"nodes[0].fpgaLatency", "-1"});
    expect_says(said_of(node("1", "2"), ""), {"nodes[0].isBackwardNode", "true, false"});
    expect_says(said_of(node("1") + "," + node("1"), ""), {"nodes[1]", "id 1 is taken"});
    expect_says(said_of(node("1"), R"({"sourceId": 1, "destId": 5, "cost": 1})"), {"edges[0].destId", "id 5"});
    expect_says(said_of(node("1"), R"({"sourceId": 1, "destId": 1, "cost": 1})"), {"to itself"});
    expect_says(said_of(node("1", "1") + "," + node("2"), R"({"sourceId": 1, "destId": 2, "cost": 1})"),
                {"forward node 'node 2' reads backward node 'node 1'"});
    expect_says(said_of(node("1") + "," + node("2") + "," + node("3"),
                        R"({"sourceId": 1, "destId": 2, "cost": 1}, {"sourceId": 1, "destId": 3, "cost": 2})"),
                {"edges[1].cost", "one output has one cost"});
    expect_says(refusal([] { parse_placement_instance("[]", "bad.json"); }), {"bad.json", "expected an object"});
    expect_says(refusal([] { parse_placement_instance("{", "bad.json"); }), {"bad.json", "not JSON"});
    expect_says(refusal([] { read_placement_instance("/nowhere.json"); }), {"/nowhere.json", "cannot read"});
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    expect_says(said_of(deep, ""), {"bad.json", "nest more than 64 deep"});
    expect_says(said_of(node("1", "[\"" + std::string(100'000, 'x') + "\"]"), ""), {"isBackwardNode", "got array"});
    expect_says(said_of(node("1e999"), ""), {"bad.json", "not JSON", "number overflow"});
    expect_says(said_of(node("1") + R"(, {"id": 2, "id": 3})", ""), {"bad.json", "is listed twice"});
}

TEST(PiperInstance, IsReadAsWritten) {
    const PiperInstance instance = parse_piper_instance(R"({"maxDevices": 2, "maxMemoryPerDevice": 8.5, "bandwidth": 3,
        "mbsInBatch": 4, "edges": [{"sourceId": 9, "destId": 1, "communicationCost": 7}],
        "nodes": [{"id": 1, "name": "loss", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.5, "parameterSize": 6,
                   "memoryUsageA": 2, "memoryUsageB": 3, "syncTimeFw": {"9": 0.25}, "syncTimeBw": {}}]}},
                  {"id": 9, "TMPCs": {"2": [{"id": "activation recomp", "timePerSample": 1, "parameterSize": 0,
                   "memoryUsageA": 0, "memoryUsageB": 0, "syncTimeFw": {}, "syncTimeBw": {"1": 0.75}}]}}]})",
                                                        "small.json");
    EXPECT_EQ(instance.devices, 2);
    EXPECT_EQ(instance.microbatches, 4);
    EXPECT_EQ(instance.memory, 8.5);
    EXPECT_EQ(instance.bandwidth, 3);
    ASSERT_EQ(instance.layers.size(), 2u);
    const PiperOption& loss = instance.layers[0].options.at(1)[0];
    EXPECT_EQ(instance.layers[0].name, "loss");
    EXPECT_EQ(loss.time, 0.5);
    EXPECT_EQ(loss.parameters, 6);
    EXPECT_EQ(loss.memory_each, 2);
    EXPECT_EQ(loss.memory, 3);
    EXPECT_FALSE(loss.recompute);
    EXPECT_EQ(loss.sync_in, std::vector<double>{0.25});
    const PiperOption& other = instance.layers[1].options.at(2)[0];
    EXPECT_EQ(instance.layers[1].name, "node 9");
    EXPECT_TRUE(other.recompute);
    EXPECT_EQ(other.sync_out, std::vector<double>{0.75});
    EXPECT_EQ(instance.edges[0].from, 1);
    EXPECT_EQ(instance.edges[0].to, 0);
    EXPECT_EQ(instance.edges[0].bytes, 7);
}

TEST(PiperInstance, RefusesWhatItCannotMean) {
    const auto said_of = [](const std::string& nodes, const std::string& edges) {
        const std::string text = R"({"maxDevices": 2, "maxMemoryPerDevice": 8, "bandwidth": 1, "mbsInBatch": 4,
            "nodes": [)" + nodes +
                                 R"(], "edges": [)" + edges + "]}";
        return refusal([&] { parse_piper_instance(text, "bad.json"); });
    };
    const auto node = [](const std::string& id, const std::string& degrees) {
        return R"({"id": )" + id + R"(, "TMPCs": {)" + degrees + "}}";
    };
    const auto option = [](const std::string& id, const std::string& more = "") {
        return R"({"id": ")" + id + R"(", "timePerSample": 1, "parameterSize": 1, "memoryUsageA": 1,
            "memoryUsageB": 1, "syncTimeFw": {)" +
               more + R"(}, "syncTimeBw": {}})";
    };
    const std::string edge = R"({"sourceId": 1, "destId": 2, "communicationCost": 1})";
    expect_says(said_of("", ""), {"bad.json", "nodes is empty"});
    expect_says(said_of(node("1", R"("x": [])"), ""), {"TMPCs", "'x'", "degrees"});
    expect_says(said_of(node("1", R"("1": [)" + option("offload") + "]"), ""), {"'offload'", "'vanilla'"});
    expect_says(said_of(node("1", R"("1": [)" + option("vanilla") + "," + option("vanilla") + "]"), ""),
                {"an option 'vanilla' already"});
    expect_says(said_of(node("1", "") + "," + node("1", ""), ""), {"id 1 is taken"});
    expect_says(said_of(node("1", "") + "," + node("2", R"("1": [)" + option("vanilla") + "]"), edge),
                {"nodes[1].TMPCs.1[0].syncTimeFw", "no key '1'"});
    expect_says(said_of(node("1", "") + "," + node("2", ""), edge + "," + edge), {"edges[1]", "joined already"});
    const std::string back = R"({"sourceId": 2, "destId": 1, "communicationCost": 1})";
    expect_says(said_of(node("1", "") + "," + node("2", ""), edge + "," + back), {"close a cycle"});
}

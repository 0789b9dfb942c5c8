// import: a config whose stages take the times of a trace.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "workloads/units.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>

namespace pw {

namespace {

class ImportConfig : public Cli {
protected:
    // Events F0, B1, ... of devices, one after the other: device d's k-th starts when its turn comes, in milliseconds.
    struct Slice {
        int device;
        const char* name;
        int start, duration;
    };
    template <std::size_t N>
    void write_events(const char* path, const Slice (&slices)[N]) const {
        Json events = Json::array();
        for (const Slice& slice : slices)
            events.push_back({{"ph", "X"},
                              {"name", slice.name},
                              {"pid", slice.device},
                              {"ts", slice.start * 1000},
                              {"dur", slice.duration * 1000}});
        write(path, events.dump());
    }
    Ns predicted(const std::string& arguments) const {
        return run_well("simulate --json " + arguments).json()["step_time_ns"].get<Ns>();
    }
};

}  // namespace

// Stage 1 takes twice as long. By hand: 0F0 10, 1F0 20, 1B0 40, 1F1 20, 1B1 40, 0B1 20. With 30 ms for 1B (15 + 15)
// and 1F as it is: 10 + 20 + 30 + 20 + 30 + 20.
TEST_F(ImportConfig, HasTheTimesAndTheScheduleOfTheTrace) {
    write_events("foreign.json", {{0, "F0", 0, 10},
                                  {0, "F1", 10, 10},
                                  {1, "F0", 10, 20},
                                  {1, "B0", 30, 40},
                                  {1, "F1", 70, 20},
                                  {1, "B1", 90, 40},
                                  {0, "B0", 70, 20},
                                  {0, "B1", 130, 20}});
    const Said said = run_well("import foreign.json -o model.yaml");
    EXPECT_EQ(said.err, "");
    EXPECT_EQ(said.out, "model.yaml: schedule: 1f1b; step 150.0 ms with these times, 150.0 ms measured\n");
    EXPECT_EQ(predicted("model.yaml"), 150'000'000);
    EXPECT_EQ(
        predicted("model.yaml --set 'workload.backward_input[1]=15 ms' --set 'workload.backward_weight[1]=15 ms'"),
        130'000'000);
    EXPECT_FALSE(std::filesystem::exists(file("model.plan.csv")));
    expect_says(run_well("simulate model.yaml --what-if pipeline.schedule=gpipe --stragglers").out, {"gpipe"});
}

// All forwards, then all backwards, the last micro-batch first: one of GPipe's two orders.
TEST_F(ImportConfig, KnowsOptionsOfSchedules) {
    write_events("foreign.json", {{0, "F0", 0, 10},
                                  {0, "F1", 10, 10},
                                  {1, "F0", 10, 10},
                                  {1, "F1", 20, 10},
                                  {1, "B1", 30, 20},
                                  {1, "B0", 50, 20},
                                  {0, "B1", 50, 20},
                                  {0, "B0", 70, 20}});
    expect_says(run_well("import foreign.json -o model.yaml").out, {"schedule: gpipe, drain: lifo; step 90.00 ms"});
    EXPECT_EQ(predicted("model.yaml"), 90'000'000);
    EXPECT_EQ(predicted("model.yaml --set pipeline.drain="), 90'000'000);  // a fifo drain takes as long
}

TEST_F(ImportConfig, TakesInputsAndWeightsApart) {
    write_events(
        "foreign.json",
        {{0, "F0", 0, 10}, {1, "F0", 10, 10}, {1, "I0", 20, 4}, {0, "I0", 24, 7}, {1, "W0", 24, 5}, {0, "W0", 31, 8}});
    run_well("import foreign.json -o model.yaml");
    const std::string text = read("model.yaml");
    expect_says(text, {"forward: [10000.000 us, 10000.000 us]", "backward_input: [7000.000 us, 4000.000 us]",
                       "backward_weight: [8000.000 us, 5000.000 us]", "micro_batches: 1"});
    EXPECT_EQ(predicted("model.yaml"), 39'000'000);
}

// Device 1 runs the second micro-batch first.
TEST_F(ImportConfig, WritesThePlanOfOtherOrders) {
    write_events("foreign.json", {{0, "F0", 0, 10},
                                  {0, "F1", 10, 10},
                                  {1, "F1", 20, 10},
                                  {1, "B1", 30, 20},
                                  {1, "F0", 50, 10},
                                  {1, "B0", 60, 20},
                                  {0, "B1", 50, 20},
                                  {0, "B0", 80, 20}});
    std::filesystem::create_directory(file("out"));
    const Said said = run_well("import foreign.json -o out/model.yaml");
    EXPECT_EQ(said.err, "note: no schedule has the order of the trace: its plan is in out/model.plan.csv\n");
    EXPECT_EQ(said.out,
              "out/model.yaml: schedule: model.plan.csv; step 100.0 ms with these times, 100.0 ms measured\n");
    EXPECT_EQ(read("out/model.plan.csv"), "0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n");
    EXPECT_EQ(predicted("out/model.yaml"), 100'000'000);
}

TEST_F(ImportConfig, RefusesWhatHasNoTimes) {
    write_events("partly.json", {{0, "F0", 0, 10}, {1, "F0", 10, 10}, {1, "B0", 20, 10}, {0, "B0", 30, 0}});
    expect_says(error_of("import partly.json -o model.yaml", 2), {"no backward of stage 0", "help: record"});
    run_well("simulate mlp.yaml --set pipeline.schedule=pipedream --trace pipedream.json");
    expect_says(error_of("import pipedream.json -o model.yaml", 2), {"asynchronous", "help: record a synchronous one"});
    EXPECT_FALSE(std::filesystem::exists(file("model.yaml")));
}

// A measured run of two stages with one replica each takes the place of any other program's.
TEST_F(ImportConfig, TakesMeasuredRuns) {
    run_well("run mlp.yaml --set run.backend=emulated --trace run.json");
    run_well("import run.json -o model.yaml");
    EXPECT_GT(predicted("model.yaml"), 0);
    run_well("simulate mlp.yaml --set 'pipeline.replicas=[2]' --set cluster.devices=2 --trace replicas.json");
    expect_says(error_of("import replicas.json -o model.yaml", 2), {"stage 0 on 2 devices", "help: name the files"});
}

TEST_F(ImportConfig, TakesPlansInBothDirectionsAndWithoutBackwards) {
    for (const std::string schedule : {"chimera", "dualpipe", "forward-only"}) {
        write("a.yaml",
              "{workload: {model: uniform, stages: 4, forward: 10 us, backward_input: 10 us, backward_weight: 10 us}, "
              "cluster: {devices: 4}, pipeline: {schedule: " +
                  schedule + ", micro_batches: 8}}");
        run_well("simulate a.yaml --trace trace.json");
        expect_says(run_well("import trace.json -o b.yaml").out, {"schedule: " + schedule});
        EXPECT_EQ(predicted("b.yaml"), predicted("a.yaml")) << schedule;
    }
}

TEST_F(ImportConfig, SaysWhatIsRecomputedAndWhen) {
    write("a.yaml",
          "{workload: {model: uniform, stages: 4}, pipeline: {schedule: 1f1b, micro_batches: 12, recompute: [0, 1], "
          "recompute_saved: 1, recompute_ahead: 2}}");
    run_well("simulate a.yaml --trace trace.json");
    run_well("import trace.json -o b.yaml");
    EXPECT_EQ(predicted("b.yaml"), predicted("a.yaml"));
    EXPECT_NE(predicted("b.yaml --set pipeline.recompute_ahead=0"), predicted("a.yaml"));
}

}  // namespace pw

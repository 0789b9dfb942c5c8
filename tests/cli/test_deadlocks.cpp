// Which plans from files complete, depending on the protocol and the message sizes of the config.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {
namespace {

// Both devices send first, in one lane each: this needs messages that leave before their receives are posted.
constexpr const char* kBothSend =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0F2,0SEND_F2,0RECV_B1,0B1,0RECV_B2,0B2\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2\n";

class Deadlocks : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("plan.csv", kBothSend);
        write_config("protocol: eager");
    }
    void write_config(const std::string& protocol) const {
        write("cfg.yaml",
              fmt::format("workload: {{model: uniform, forward: 10 ms, backward_input: 20 ms, backward_weight: 0 us, "
                          "output: 20 MiB}}\n"
                          "cluster: {{devices: 2, link: {{bandwidth: 20 GB/s, latency: 10 us}}}}\n"
                          "pipeline: {{schedule: plan.csv}}\n"
                          "transfer: {{communicator: one, receive: deferred, {}}}\n"
                          "training: {{steps: 2}}\n",
                          protocol));
    }
};

TEST_F(Deadlocks, EagerMessagesDoNotDeadlock) {
    const Json own_lanes = run_well("simulate cfg.yaml --json --set transfer.communicator=edge").json();
    EXPECT_NEAR(own_lanes["step_time_ns"].get<double>(), 124.2e6, 0.1e6);
    const Said said = run_well("simulate cfg.yaml --json");
    EXPECT_EQ(said.json()["step_time_ns"], own_lanes["step_time_ns"]);
    expect_says(said.err, {"note: plan plan.csv needs messages that leave before", "it hangs"});
    expect_says(run_well("validate cfg.yaml").out, {"free of deadlock (communicator one, receive deferred, eager)"});
    run_well("run cfg.yaml --set run.backend=emulated");
}

TEST_F(Deadlocks, TheSizesOfMessagesDecide) {
    write_config("protocol: rendezvous, eager_limit: 32 MiB");
    run_well("simulate cfg.yaml");
    run_well("run cfg.yaml --set run.backend=emulated");
    run_well("simulate cfg.yaml --trace t.json");
    EXPECT_EQ(run_well("compare t.json --replay --json").json()["mechanics_ns"], 0);
    expect_says(error_of("simulate cfg.yaml --set workload.output='64 MiB'", 3),
                {"deadlocks (communicator one, receive deferred, rendezvous above 32 MiB)", "1SEND_B0", "0RECV_B0",
                 "help: it completes with communicator: edge (transfer.communicator)\n"});
    write_config("protocol: rendezvous");
    expect_says(error_of("simulate cfg.yaml", 3), {"plan.csv:1, cell 4: 0SEND_F1", "plan.csv:2, cell 4: 1SEND_B0"});
}

// Transports of a run may hold a message until its receive is posted.
TEST_F(Deadlocks, ARunOnDevicesThatComputeNeedsTheProofUnderRendezvous) {
    const std::string arguments =
        "mlp.yaml --set pipeline.schedule=plan.csv --set pipeline.micro_batches=3 --set transfer.communicator=one";
    run_well("simulate " + arguments);
    const Said refused = run("run " + arguments);
    EXPECT_EQ(refused.code, 3);
    EXPECT_EQ(refused.out, "");
    expect_says(refused.err,
                {"deadlocks (communicator one, receive early, rendezvous)", "help: a run may keep a message"});
    run_well("run " + arguments + " --set run.backend=emulated");
    run_well("run " + arguments + " --set transfer.communicator=edge");
}

// Megatron-LM's interleaved order for four devices, two chunks and groups of two micro-batches, written out. Stage 4
// waits for forward 3, which comes after backward 0 of stage 3, which needs that of stage 4.
TEST_F(Deadlocks, ACycleOfComputeTasksIsRefusedInAllModes) {
    write("group2.csv",
          "0F0,0F1,2F0,2F1,0F2,0F3,2F2,2F3,2B0,2B1,0B0,0B1,2B2,2B3,0B2,0B3\n"
          "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
    const Said said = run("validate group2.csv");
    EXPECT_EQ(said.code, 3);
    EXPECT_FALSE(contains(said.out, "free")) << said.out;
    expect_says(said.err, {"plan 'group2.csv' deadlocks (in all lanes, under all protocols)",
                           "group2.csv:1, cell 9: 2B0", "group2.csv:2, cell 8: 1B0", "change the order of the tasks"});
    EXPECT_FALSE(contains(said.err, "validate")) << said.err;
    EXPECT_FALSE(contains(said.err, "SEND")) << said.err;  // the file has none
}

}  // namespace
}  // namespace pw

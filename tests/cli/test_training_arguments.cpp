// simulate --arguments
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

namespace pw {

namespace {

constexpr const char* kTransformer = R"(
workload: {model: llama-3-8b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
parallel: {tensor: 2, zero: 1}
pipeline: {mini_batch: 16}
training: {precision: bf16, optimizer: adamw}
)";

}  // namespace

TEST_F(Cli, ArgumentsReplaceTheReport) {
    write("plan.yaml", kTransformer);
    const Said said = run_well("simulate plan.yaml --arguments megatron-lm");
    EXPECT_TRUE(said.out.starts_with("--tensor-model-parallel-size 2\n--sequence-parallel\n")) << said.out;
    EXPECT_TRUE(contains(said.err, "note: start it with 16 ranks: torchrun --nnodes 2 --nproc-per-node 8\n"))
        << said.err;
    EXPECT_EQ(run_well("simulate plan.yaml --arguments deepspeed").json()["train_batch_size"], 16);
}

TEST_F(Cli, ArgumentsAreOfOnePlanAndOneProgram) {
    write("plan.yaml", kTransformer);
    expect_says(error_of("simulate plan.yaml --arguments torchtitan", 2), {"plan.yaml:4", "write zero: 2 or 3"});
    expect_says(error_of("simulate plan.yaml --arguments megatron-lm --json", 2), {"--arguments", "--json"});
    expect_says(error_of("simulate plan.yaml --arguments nemo", 2), {"megatron-lm"});
    expect_says(error_of("simulate plan.yaml --arguments deepspeed --set 'sweep={parallel.tensor: [1, 2]}'", 2),
                {"one plan", "take one point"});
}

}  // namespace pw

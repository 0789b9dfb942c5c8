// Plans of transformers as the arguments of training programs, against texts written by hand.
#include "tests/report/argument_texts.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {

namespace {

constexpr const char* kInterleaved = "schedule: interleaved, stages: 20, mini_batch: 128";

}  // namespace

TEST(TrainingArguments, OfMegatronAreThoseOfItsCommandLine) {
    EXPECT_EQ(text_for("megatron-lm", "llama-3-70b", "tensor: 4, pipeline: 4, context: 2, zero: 1", kInterleaved),
              R"(--tensor-model-parallel-size 4
--sequence-parallel
--pipeline-model-parallel-size 4
--context-parallel-size 2
--num-layers-per-virtual-pipeline-stage 4
--micro-batch-size 1
--global-batch-size 128
--num-layers 80
--hidden-size 8192
--ffn-hidden-size 28672
--num-attention-heads 64
--group-query-attention
--num-query-groups 8
--kv-channels 128
--position-embedding-type rope
--attention-backend fused
--normalization RMSNorm
--swiglu
--disable-bias-linear
--untie-embeddings-and-output-weights
--vocab-size 128256
--make-vocab-size-divisible-by 128
--seq-length 8192
--max-position-embeddings 8192
--attention-dropout 0
--hidden-dropout 0
--bf16
--optimizer adam
--lr 0.0003
--weight-decay 0.1
--clip-grad 1
--adam-beta1 0.9
--adam-beta2 0.95
--adam-eps 1e-08
--use-distributed-optimizer
--overlap-grad-reduce
--overlap-param-gather
--tp-comm-overlap
)");
}

// Megatron-LM's precision-aware optimizer (megatron/core/optimizer/optimizer_config.py): Adam in the distributed
// optimizer, master weights in fp32 or fp16, gradients in fp32 or bf16, averages also in fp8.
TEST(TrainingArguments, OfMegatronNameTheTypesOfItsOptimizer) {
    const std::string model = "llama-3-70b", parallel = "tensor: 4, pipeline: 4, zero: 1", plan = "mini_batch: 64";
    const auto text = [&](const std::vector<std::string>& set) {
        return text_for("megatron-lm", model, parallel, plan, set);
    };
    const auto refused = [&](const std::vector<std::string>& set, const std::string& where = "zero: 1") {
        return refusal_of("megatron-lm", model, "tensor: 4, pipeline: 4, " + where, plan, set);
    };
    EXPECT_TRUE(contains(text({"training.gradient_type=bf16", "training.master_type=fp16",
                               "training.momentum_type=bf16", "training.variance_type=fp8"}),
                         "--grad-reduce-in-bf16\n--optimizer adam\n--use-precision-aware-optimizer\n"
                         "--main-grads-dtype bf16\n--main-params-dtype fp16\n--exp-avg-dtype bf16\n"
                         "--exp-avg-sq-dtype fp8\n--lr"));
    const std::string in_fp32 = text({"training.gradient_type=fp32", "training.momentum_type=fp32"});
    EXPECT_EQ(in_fp32, text({}));
    EXPECT_TRUE(has_line(text({"training.precision=fp8", "training.weight_type=fp8"}), "--fp8-param-gather"));
    expect_says(refused({"training.momentum_type=int8"}), {"training.momentum_type", "no argument for", "int8"});
    expect_says(refused({"training.master_type=none"}), {"training.master_type", "none", "remove the key"});
    expect_says(refused({"training.weight_type=fp8"}), {"training.weight_type"});
    expect_says(refused({"training.momentum_type=bf16"}, "zero: 0"), {"parallel.zero", "zero: 1"});
    expect_says(refused({"training.optimizer=adamw-8bit"}), {"training.optimizer", "write optimizer: adamw"});
    EXPECT_TRUE(
        has_line(text_for("megatron-lm", model, "tensor: 4, pipeline: 4, zero: 0", plan, {"training.optimizer=muon"}),
                 "--optimizer muon"));
    expect_says(refusal_of("deepspeed", model, parallel, plan, {"training.variance_type=bf16"}),
                {"training.variance_type", "DeepSpeed has no argument for"});
    expect_says(refusal_of("torchtitan", model, "tensor: 4, pipeline: 4, zero: 3, release: torchtitan", plan,
                           {"training.gradient_type=bf16"}),
                {"training.gradient_type", "torchtitan has no argument for"});
}

// 16 stages of 128 blocks, of which two are the ends
TEST(TrainingArguments, OfMegatronHaveALayoutWhereBothEndsCountAsBlocks) {
    const std::string text = text_for("megatron-lm", "llama-3.1-405b", "tensor: 8, pipeline: 4, zero: 1",
                                      "schedule: interleaved, stages: 16, mini_batch: 16");
    EXPECT_TRUE(has_line(text,
                         "--pipeline-model-parallel-layout Et*7|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|t*8|"
                         "t*8|t*7L"))
        << text;
    EXPECT_FALSE(contains(text, "virtual"));
}

// A layout says where modules of further tokens are if they are not on the last stage.
TEST(TrainingArguments, OfMegatronHaveModulesOfFurtherTokens) {
    const auto text = [](const std::string& split) {
        return text_for("megatron-lm", "deepseek-v3", "pipeline: 4, expert: 16, zero: 1",
                        "mini_batch: 64, split: " + split, {"workload.mtp_layers=1", "cluster.memory=inf"});
    };
    EXPECT_TRUE(has_line(text("[15, 15, 15, 16]"), "--mtp-num-layers 1"));
    EXPECT_TRUE(has_line(text("[15, 15, 15, 16]"), "--pipeline-model-parallel-layout Et*15|t*15|t*15|t*16mL"));
    EXPECT_TRUE(has_line(text("Et*20|t*20|t*21|mL"), "--pipeline-model-parallel-layout Et*20|t*20|t*21|mL"));
    EXPECT_FALSE(contains(text_for("megatron-lm", "deepseek-v3", "pipeline: 4", "mini_batch: 64"), "--mtp"));
    expect_says(refusal_of("megatron-lm", "deepseek-v3", "pipeline: 4, recompute: {kind: full, group: 2}",
                           "mini_batch: 64", {"workload.mtp_layers=1"}),
                {"modules of further tokens in groups of one block only", "write group: 1"});
    expect_says(
        refusal_of("torchtitan", "deepseek-v3", "zero: 3, expert: 8", "mini_batch: 64", {"workload.mtp_layers=1"}),
        {"predicts no further tokens", "write mtp_layers: 0"});
    for (const auto& [model, has] : {std::pair{"nemotron-h-8b", "no layers with Mamba-2"},
                                     {"gemma3-12b", "no norms after attention and MLP"},
                                     {"gpt-neox-20b", "no attention and MLP with the same input"}})
        expect_says(refusal_of("megatron-lm", model, "tensor: 2", "mini_batch: 64"), {has, "name a model without"});
}

// 64 ranks are 2 stages of 32 replicas; 4 micro-batches of 2 sequences each
TEST(TrainingArguments, OfTorchtitanAreItsToml) {
    EXPECT_EQ(
        text_for("torchtitan", "llama-3-8b",
                 "pipeline: 2, zero: 3, zero_group: 8, recompute: {kind: full, share: 0.5}, release: torchtitan",
                 "mini_batch: 256, micro_batch_size: 2"),
        R"([model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 8
global_batch_size = 256
seq_len = 8192
max_norm = 1.0
mixed_precision_param = "bfloat16"

[parallelism]
data_parallel_replicate_degree = 4
data_parallel_shard_degree = 8
fsdp_reshard_after_forward = "always"
tensor_parallel_degree = 1
context_parallel_degree = 1
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatch_size = 2
module_fqns_per_model_part = [
    ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "layers.6", "layers.7", )"
        R"("layers.8", "layers.9", "layers.10", "layers.11", "layers.12", "layers.13", "layers.14", "layers.15"],
    ["layers.16", "layers.17", "layers.18", "layers.19", "layers.20", "layers.21", "layers.22", "layers.23", )"
        R"("layers.24", "layers.25", "layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31", )"
        R"("norm", "output"],
]

[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"

[optimizer]
name = "AdamW"
lr = 0.0003
beta1 = 0.9
beta2 = 0.95
eps = 1e-08
weight_decay = 0.1

[compile]
enable = false
)");
}

TEST(TrainingArguments, OfTorchtitanFollowPyTorchsSchedules) {
    for (const auto& [own, name] : {std::pair{"gpipe, stages: 4", "GPipe"},
                                    {"interleaved, stages: 8", "Interleaved1F1B"},
                                    {"bfs, stages: 8", "LoopedBFS"},
                                    {"zb1p, stages: 8", "InterleavedZeroBubble"},
                                    {"zb-v, stages: 8", "ZBVZeroBubble"},
                                    {"dualpipe-v, stages: 8", "DualPipeV"}})
        EXPECT_TRUE(has_line(text_for("torchtitan", "llama-3-70b", "tensor: 4, pipeline: 4, zero: 3",
                                      std::string("mini_batch: 32, schedule: ") + own),
                             std::string("pipeline_parallel_schedule = \"") + name + "\""))
            << own;
}

// 64 ranks are 4 stages of 16 replicas
TEST(TrainingArguments, OfDeepSpeedAreItsJson) {
    const Job job = job_of_plan("llama-2-13b", "pipeline: 4, zero: 1, recompute: full", "mini_batch: 128");
    const TrainingArguments arguments = training_arguments("deepspeed", job);
    EXPECT_EQ(nlohmann::json::parse(arguments.text), nlohmann::json::parse(R"({
        "train_batch_size": 128, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
        "zero_optimization": {"stage": 1, "overlap_comm": true},
        "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "gradient_clipping": 1.0})"));
    EXPECT_EQ(arguments.notes, (Notices{"start it with 64 ranks: torchrun --nnodes 8 --nproc-per-node 8",
                                        "the training script sets the degree of pipeline parallelism, 4",
                                        "the training script cuts the stages: 10, 10, 10, 10 blocks (PipelineModule)",
                                        "the training script recomputes: parallel.recompute is full, share: 1"}));
}

// What the config does not say, the program decides, and a note says so. The optimizer is said: its states need memory.
TEST(TrainingArguments, HaveNoHyperParametersThatTheConfigDoesNotSay) {
    Notices notices;
    const std::string text =
        "{workload: {model: llama-3-8b, sequence_length: 8192}, cluster: {hosts: 2, devices_per_host: 8, device: "
        "h100-sxm-80, between: {link: ndr400, adapters: 8}}, parallel: {zero: 3}, pipeline: {mini_batch: 32}, "
        "training: {precision: bf16, optimizer: adamw}}";
    const Job job = make_job(load(text), notices);
    const std::string megatron = training_arguments("megatron-lm", job).text;
    for (const char* flag : {"--lr", "--weight-decay", "--clip-grad", "--adam-beta1", "--adam-beta2", "--adam-eps"})
        EXPECT_FALSE(contains(megatron, flag)) << flag;
    EXPECT_TRUE(has_line(megatron, "--optimizer adam"));
    const std::string titan = training_arguments("torchtitan", job).text;
    EXPECT_TRUE(contains(titan, "[optimizer]\nname = \"AdamW\"\n\n[compile]")) << titan;
    EXPECT_FALSE(contains(titan, "max_norm"));
    const auto deepspeed = nlohmann::json::parse(training_arguments("deepspeed", job).text);
    EXPECT_EQ(deepspeed["optimizer"], nlohmann::json::parse(R"({"type": "AdamW"})"));
    EXPECT_FALSE(deepspeed.contains("gradient_clipping"));
    EXPECT_EQ(training_arguments("torchtitan", job).notes[1],
              "left to torchtitan, as the config does not say: training.max_norm, optimizer.lr, optimizer.beta1, "
              "optimizer.beta2, optimizer.eps, optimizer.weight_decay (training.clip_norm, training.learning_rate, "
              "training.betas, training.epsilon, training.weight_decay)");
    const Job clipped = make_job(load(text, {"training.clip_norm=0"}), notices);
    EXPECT_TRUE(has_line(training_arguments("megatron-lm", clipped).text, "--clip-grad 0"));
    EXPECT_TRUE(contains(training_arguments("torchtitan", clipped).text, "max_norm = inf"));
}

// The config of a plan, written and read again, says as little as the config of the plan.
TEST(TrainingArguments, AreTheSameFromAPrintedConfig) {
    Notices notices;
    for (const std::vector<std::string>& set :
         {std::vector<std::string>{}, {"training.clip_norm=0", "training.learning_rate=0.001"}}) {
        const Job job = make_job(
            load("{workload: {model: llama-3-8b}, cluster: {devices: 8, device: h100-sxm-80}, parallel: {zero: 3}, "
                 "pipeline: {mini_batch: 32}, training: {precision: bf16, optimizer: adamw}}",
                 set),
            notices);
        const Job again = make_job(load(job.setup.yaml), notices);
        for (const TrainingProgram& program : training_programs()) {
            const std::string_view name = name_of(program.program);
            EXPECT_EQ(training_arguments(name, again).text, training_arguments(name, job).text) << name;
        }
    }
}

// One verdict: what refuses an export also says which program runs a plan.
TEST(TrainingArguments, AreRefusedWhereTheVerdictOnTheConfigIs) {
    int refused = 0, accepted = 0;
    for (const char* model : {"llama-3-70b", "mixtral-8x7b", "gpt-oss-20b"})
        for (const char* parallel :
             {"tensor: 4, pipeline: 4, zero: 1", "tensor: 2, zero: 3", "context: 2, zero: 3, recompute: norms",
              "pipeline: 4, zero: 1, recompute: full", "tensor: 4, sequence: false", "zero: 3, recompute: full"})
            for (const char* pipeline : {"mini_batch: 64", "mini_batch: 64, schedule: gpipe",
                                         "mini_batch: 128, schedule: interleaved, stages: 8"}) {
                if (contains(pipeline, "stages") != contains(parallel, "pipeline"))
                    continue;
                const Job job = job_of_plan(model, parallel, pipeline);
                const std::vector<std::string> runs = programs_that_run(job.setup);
                for (const TrainingProgram& program : training_programs()) {
                    const std::string_view name = name_of(program.program);
                    const std::string said = said_of(name, job);
                    const std::optional<Refusal> verdict = refusal_of(program.program, job.setup);
                    EXPECT_EQ(said.empty(), !verdict) << name << " " << model << " " << parallel << " " << said;
                    EXPECT_EQ(std::count(runs.begin(), runs.end(), name), verdict ? 0 : 1);
                    if (verdict)
                        expect_says(said, {verdict->fact, verdict->help});
                    ++(verdict ? refused : accepted);
                }
            }
    EXPECT_GT(refused, 20);
    EXPECT_GT(accepted, 10);
}

TEST(TrainingArguments, RefuseWhatAProgramDoesNotHave) {
    const std::string plain = "mini_batch: 64", whole = "tensor: 4, pipeline: 4, zero: 1";
    expect_says(refusal_of("megatron-lm", "llama-3-70b", whole, "schedule: zb-v, stages: 8, mini_batch: 64"),
                {"Megatron-LM has no schedule zb-v", "write schedule: 1f1b, interleaved"});
    expect_says(refusal_of("megatron-lm", "mpt-7b", "pipeline: 4", plain), {"no ALiBi positions, which mpt-7b has"});
    expect_says(
        refusal_of("megatron-lm", "llama-3-70b", "pipeline: 4, tensor: 4, recompute: norms", plain),
        {"recomputes norms, but no activations", "write recompute: none, full, or some of core_attn, layernorm"});
    expect_says(refusal_of("megatron-lm", "mixtral-8x7b", "tensor: 2, sequence: false", plain),
                {"only if it has sequence parallelism", "write parallel.tensor: 1"});
    expect_says(refusal_of("torchtitan", "llama-3-70b", whole, plain),
                {"wherever it divides the states of the optimizer", "zero: 2 or 3"});
    expect_says(
        refusal_of("torchtitan", "llama-3-70b", "tensor: 4, pipeline: 4, zero: 3", "schedule: zb-h1, mini_batch: 64"),
        {"torchtitan has no schedule zb-h1", "gpipe"});
    expect_says(refusal_of("torchtitan", "mixtral-8x7b", "zero: 3", plain), {"shapes of mixtral-8x7b", "llama-3-8b"});
    expect_says(refusal_of("deepspeed", "llama-3-70b", "tensor: 8, context: 2, zero: 1", plain),
                {"passes no keys and values round", "write context: 1"});
    expect_says(refusal_of("deepspeed", "llama-3-70b", "tensor: 8, pipeline: 2, zero: 3", plain),
                {"no gradients or weights of a pipeline", "write zero: 0 or 1"});
    expect_says(refusal_of("deepspeed", "llama-3-70b", whole, plain, {"training.precision=fp8"}),
                {"no key for fp8", "bf16, fp16 or fp32"});
}

TEST(TrainingArguments, AreOfTransformers) {
    Notices notices;
    const Job job = make_job(load("{workload: {model: uniform}, cluster: {devices: 2}}"), notices);
    for (const TrainingProgram& program : training_programs())
        expect_says(refusal([&] { training_arguments(name_of(program.program), job); }),
                    {"a transformer, not model: uniform"});
}

// What a config.json and a preset share is the shapes.
TEST(TrainingArguments, OfTorchtitanNameTheModelByItsShapes) {
    const std::vector<std::string> longer{"workload.model=llama-3.1-70b"};
    EXPECT_TRUE(has_line(text_for("torchtitan", "llama-3-70b", "tensor: 8, zero: 3", "mini_batch: 8", longer),
                         "flavor = \"70B\""));
}

}  // namespace pw

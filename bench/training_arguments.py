#!/usr/bin/env python3
"""Gives plans of transformers to the parsers of the programs that train them.

    bench/training_arguments.py PIPEWRIGHT [--megatron FOLDER]

`pipewright simulate --arguments` writes each plan for each program that can run it:
- Megatron-LM, a checkout in FOLDER with its megatron-core (0.15 or 0.16; or that of pip): parse_args(), validate_args() and
  core_transformer_config_from_args() must take the arguments. The number of replicas must be the plan's, and the order of
  passes that megatron-core's schedules derive from the arguments must be the plan's, task by task.
- torchtitan 0.2: ConfigManager must take the TOML, ParallelDims the degrees, for as many ranks as the plan has; the flavor
  must have the shapes of the plan's model, and the stages all of its modules; PyTorch must have the schedule.
- DeepSpeed: DeepSpeedConfig must take the JSON, for as many replicas as the plan has.

Prints one table. A program that is not installed is skipped, and a line on stderr says so. Exit status 77 without any of
them, 1 when a program refuses a plan.
"""
import argparse
import contextlib
import csv
import importlib.util
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
CLUSTER = "device: h100-sxm-80, devices_per_host: 8, between: {link: ndr400, adapters: 8}"
ADAM = "training: {precision: bf16, optimizer: adamw, learning_rate: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1}"


def plan(model, hosts, parallel, pipeline, tokens=8192, training=ADAM):
    return (f"workload: {{model: {model}, sequence_length: {tokens}}}\ncluster: {{hosts: {hosts}, {CLUSTER}}}\n"
            f"parallel: {{{parallel}}}\npipeline: {{{pipeline}}}\n{training}\n")


FP8 = ADAM.replace("bf16", "fp8")
PLANS = [  # name, config, programs
    ("70b, interleaved", plan("llama-3-70b", 8, "tensor: 4, pipeline: 4, context: 2, zero: 1",
                              "schedule: interleaved, stages: 20, mini_batch: 128"), ["megatron-lm"]),
    ("70b, groups of 6", plan("llama-3-70b", 4, "tensor: 4, pipeline: 4, zero: 1, recompute: {kind: full, share: 0.5}",
                              "schedule: interleaved, stages: 8, group: 6, mini_batch: 24"), ["megatron-lm"]),
    ("405b, ends are blocks", plan("llama-3.1-405b", 64, "tensor: 8, pipeline: 16, zero: 1",
                                   "schedule: interleaved, stages: 128, mini_batch: 256"), ["megatron-lm"]),
    ("175b, recomputes", plan("gpt3-175b", 8, "tensor: 8, pipeline: 8, zero: 1, recompute: full, release: megatron-2022",
                              "mini_batch: 64", 2048), ["megatron-lm", "deepspeed"]),
    ("mixtral", plan("mixtral-8x7b", 4, "tensor: 2, pipeline: 4, expert: 8, zero: 1", "mini_batch: 64", 4096),
     ["megatron-lm"]),
    ("mixtral, parts of experts", plan("mixtral-8x7b", 4, "tensor: 2, pipeline: 4, expert: 4, expert_tensor: 2, zero: 1",
                                       "mini_batch: 64", 4096), ["megatron-lm"]),
    ("deepseek-v3", plan("deepseek-v3", 128, "pipeline: 16, expert: 64, zero: 1, recompute: selective",
                         "split: auto, mini_batch: 1024", 4096), ["megatron-lm"]),
    ("gpt-oss", plan("gpt-oss-20b", 1, "expert: 8, zero: 1", "mini_batch: 16", 4096), ["megatron-lm"]),
    ("8b, ZeRO-3", plan("llama-3-8b", 2, "zero: 3", "mini_batch: 32"), ["megatron-lm", "torchtitan", "deepspeed"]),
    ("8b, groups of ZeRO-3", plan("llama-3-8b", 2, "zero: 3, zero_group: 8, recompute: {kind: full, share: 0.5}",
                                  "mini_batch: 32"), ["megatron-lm", "torchtitan", "deepspeed"]),
    ("70b, interleaved, ZeRO-3", plan("llama-3-70b", 8, "tensor: 4, pipeline: 4, context: 2, zero: 3, recompute: full",
                                      "schedule: interleaved, stages: 8, mini_batch: 128"), ["torchtitan"]),
    ("405b, 1f1b, fp8", plan("llama-3.1-405b", 64, "tensor: 8, pipeline: 16, zero: 2", "mini_batch: 256", training=FP8),
     ["torchtitan"]),
    ("qwen3, ZB-V", plan("qwen3-32b", 4, "tensor: 2, pipeline: 4, zero: 3", "schedule: zb-v, stages: 8, mini_batch: 64"),
     ["torchtitan"]),
    ("qwen3, experts", plan("qwen3-30b-a3b", 2, "tensor: 2, expert: 8, zero: 3", "mini_batch: 64"), ["torchtitan"]),
    ("qwen3, parts of experts", plan("qwen3-30b-a3b", 2, "tensor: 2, expert: 8, expert_tensor: 2, zero: 3",
                                     "mini_batch: 64"), ["torchtitan"]),
    *((preset, plan(preset, 64, "zero: 3", "mini_batch: 512", 4096), ["torchtitan"]) for preset in (
        "qwen3-8b", "qwen3-14b", "qwen3-235b-a22b", "deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "gpt-oss-20b",
        "gpt-oss-120b")),
    ("13b, stage 2", plan("llama-2-13b", 2, "zero: 2, recompute: full", "mini_batch: 64", 4096), ["deepspeed"]),
]


def call(*words):
    done = subprocess.run([arguments.pipewright, *words], cwd=folder, text=True, capture_output=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout


def shapes_of_plan():
    """The shapes of the plan's model, by the names of Megatron-LM, from arguments of a plan that it can run."""
    text = call("simulate", "plan.yaml", "--arguments", "megatron-lm", "--set",
                "parallel={zero: 1}", "--set", "pipeline={mini_batch: 8192}")
    return {name: int(value) for name, _, value in (line[2:].partition(" ") for line in text.splitlines())
            if value.isdigit()}


SHAPES = {  # of torchtitan's models, and what Megatron-LM calls them
    "n_layers": "num-layers", "dim": "hidden-size", "n_heads": "num-attention-heads", "n_kv_heads": "num-query-groups",
    "vocab_size": "vocab-size", "head_dim": "kv-channels", "inter_dim": "ffn-hidden-size", "hidden_dim": "ffn-hidden-size",
    "moe_inter_dim": "moe-ffn-hidden-size", "num_experts": "num-experts", "top_k": "moe-router-topk",
    "q_lora_rank": "q-lora-rank", "kv_lora_rank": "kv-lora-rank", "qk_nope_head_dim": "qk-head-dim",
    "qk_rope_head_dim": "qk-pos-emb-head-dim", "v_head_dim": "v-head-dim"}


def compare_shapes(model):
    """Returns how many shapes were compared."""
    ours, compared = shapes_of_plan(), 0
    facts = vars(model) | (vars(model.moe_args) if "num-experts" in ours else {})
    for name, other in SHAPES.items():
        if name in facts and other in ours:
            same(name, facts[name], ours[other])
            compared += 1
    return compared


def ranks():
    return 8 * int(re.search(r"hosts: (\d+)", (folder / "plan.yaml").read_text())[1])


def degree(name):
    found = re.search(rf"\b{name}: (\d+)", re.search(r"parallel: .*", (folder / "plan.yaml").read_text())[0])
    return int(found[1]) if found else 1


def replicas():
    return ranks() // (degree("tensor") * degree("pipeline") * degree("context"))


def same(what, got, expected):
    if got != expected:
        raise ValueError(f"{what}: {got}, not {expected}")


def orders():
    """By device (stage, micro-batch, forward) of every pass."""
    rows = csv.reader(call("plan", "plan.yaml", "--format", "csv").splitlines())
    return [[(int(stage), int(micro_batch), op == "F") for stage, op, micro_batch in
             (re.fullmatch(r"(\d+)([FB])(\d+)", cell).groups() for cell in row if cell)] for row in rows]


class Ranks:
    """One rank of a pipeline, as megatron-core's schedules ask for it."""

    def __init__(self, size, rank, chunks):
        self.pp_group, self.virtual_pipeline_model_parallel_size = self, chunks if chunks > 1 else None
        self.size, self.rank = lambda: size, lambda: rank


def orders_of_megatron(parsed):
    from megatron.core.pipeline_parallel import schedules
    devices, chunks = parsed.pipeline_model_parallel_size, parsed.virtual_pipeline_model_parallel_size or 1
    micro_batches = parsed.global_batch_size // parsed.micro_batch_size // parsed.data_parallel_size
    group = parsed.microbatch_group_size_per_vp_stage or devices
    table = schedules.get_schedule_table(micro_batches, chunks, group)
    for device in range(devices):
        total, _, ahead, _ = schedules.get_pp_rank_microbatches(
            micro_batches, chunks, group, p2p_communicator=Ranks(devices, device, chunks))
        forward = [(chunk * devices + device, micro_batch, True) for micro_batch, chunk in table]
        backward = [((chunks - 1 - chunk) * devices + device, micro_batch, False) for micro_batch, chunk in table]
        order = forward[:ahead]
        for step in range(total):
            order += forward[ahead + step:ahead + step + 1] + [backward[step]]
        yield order


def megatron(text):
    os.environ["WORLD_SIZE"] = str(ranks())
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if "--use-megatron-fsdp" not in text:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["pretrain_gpt.py", *text.split()]
    if importlib.util.find_spec("transformer_engine") is None:
        sys.argv.append("--no-rope-fusion")  # which is that of Transformer Engine
    theirs = importlib.import_module("megatron.training.arguments")
    if not torch.cuda.is_available():
        theirs.get_device_arch_version = lambda: 9
    parsed = theirs.validate_args(theirs.parse_args())
    config = theirs.core_transformer_config_from_args(parsed)
    same("replicas", parsed.data_parallel_size, replicas())
    same("experts of a rank", (config.num_moe_experts or 1) % parsed.expert_model_parallel_size, 0)
    same("orders", list(orders_of_megatron(parsed)), orders())
    return f"{len(text.splitlines())} arguments; {type(config).__name__}; order of {ranks()} ranks"


def torchtitan(text):
    from torch.distributed.pipelining.schedules import get_schedule_class
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims
    (folder / "plan.toml").write_text(text)
    config = ConfigManager().parse_args(["--job.config_file", str(folder / "plan.toml")])
    own = config.parallelism
    dims = ParallelDims(dp_replicate=own.data_parallel_replicate_degree, dp_shard=own.data_parallel_shard_degree,
                        cp=own.context_parallel_degree, tp=own.tensor_parallel_degree, pp=own.pipeline_parallel_degree,
                        ep=own.expert_parallel_degree, etp=own.expert_tensor_parallel_degree, world_size=ranks())
    same("replicas", dims.dp_replicate * dims.dp_shard, replicas())
    same("left of the sequence", config.training.seq_len % dims.seq_len_divisor, 0)
    same("left of the batch", config.training.global_batch_size % (config.training.local_batch_size * replicas()), 0)
    spec = importlib.import_module(f"torchtitan.models.{config.model.name}").get_train_spec()
    model = spec.model_args[config.model.flavor]
    compared = compare_shapes(model)
    if own.pipeline_parallel_degree > 1:
        get_schedule_class(own.pipeline_parallel_schedule)
        modules = ["tok_embeddings", *(f"layers.{block}" for block in range(model.n_layers)), "norm", "output"]
        same("modules", sum(own.module_fqns_per_model_part, []), modules)
    return f"{config.model.name} {config.model.flavor}, {compared} equal shapes; {dims.world_size} ranks"


def deepspeed(text):
    from deepspeed.runtime.config import DeepSpeedConfig
    import deepspeed.comm
    deepspeed.comm.init_distributed("gloo", rank=0, world_size=1, init_method=f"file://{folder}/store", verbose=False,
                                    auto_mpi_discovery=False)

    class Replicas:
        get_data_parallel_world_size = staticmethod(replicas)

    config = DeepSpeedConfig(json.loads(text), mpu=Replicas)
    same("stage", config.zero_optimization_stage, degree("zero") if "zero: " in (folder / "plan.yaml").read_text() else 0)
    return f"ZeRO {config.zero_optimization_stage}; {config.world_size} replicas"


def installed():
    found = {}
    for program, module, check in [("megatron-lm", "megatron.training.arguments", megatron),
                                   ("torchtitan", "torchtitan.config", torchtitan),
                                   ("deepspeed", "deepspeed.runtime.config", deepspeed)]:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(module)
            found[program] = check
        except Exception as error:
            print(f"skipped: {program}: {error}", file=sys.stderr)
    return found


logging.disable(logging.WARNING)
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("pipewright", type=lambda path: str(Path(path).resolve()))
parser.add_argument("--megatron", help="a checkout of Megatron-LM")
arguments = parser.parse_args()
if arguments.megatron:
    sys.path.insert(0, arguments.megatron)
try:
    import torch
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)
programs = installed()
if not programs:
    sys.exit(77)
failed = 0
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for title, config, names in PLANS:
        (folder / "plan.yaml").write_text(config)
        for program in names:
            if program not in programs:
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    said = programs[program](call("simulate", "plan.yaml", "--arguments", program))
            except (Exception, SystemExit) as error:
                said, failed = f"REFUSED: {type(error).__name__}: {error}", failed + 1
            print(f"{title:26} {program:12} {said}")
sys.exit(failed > 0)

"""Facts that sources leave open, and what is tried for each: the first value counts, all together give a band.

A first value has a source that is near, or is the most usual; it is not the value with the least error.
"""
import itertools
import re
from dataclasses import dataclass
from typing import Callable

import bridge_recipes
import cluster_sources


@dataclass(frozen=True)
class Value:
    name: str
    keys: dict | Callable  # of a row, or a function from a row to them; they replace those of the row
    reason: str

    def of(self, row):
        return self.keys(row) if callable(self.keys) else self.keys


@dataclass(frozen=True)
class Guess:
    groups: str  # pattern of the groups' names
    fact: str
    values: tuple
    is_open: Callable = lambda row: True  # in which rows


def heads_of(width):
    return lambda row: {"heads": row["hidden"] // width}


GUESSES = (
    Guess("^modalities-", "heads", (
        Value("of 128", heads_of(128), "GPT-3's in its models with as many layers and as large a hidden size, but for 2.7B"),
        Value("of 64", heads_of(64), "GPT-2's and GPT-3's small models'"))),
    Guess("^modalities-", "program", (
        Value("fsdp-2023", {"program_release": "fsdp-2023"}, "PyTorch's FSDP 1, as in llm-foundry"),
        Value("torchtitan", {"program_release": "torchtitan"}, "PyTorch's FSDP 2, with its copies"))),
    Guess("^nemo-launcher-gpt3-5b", "batch", (
        Value("2048", {"global_batch_sequences": 2048}, "the config's, which is of 16 hosts"),
        Value("16 per GPU", lambda row: {"global_batch_sequences": 16 * row["gpus"]}, "the same on 16 hosts, in proportion")),
          lambda row: "global_batch_sequences" not in row),
    Guess("^bridge-2", "recomputation", (
        Value("the nearest recipe's", {}, "of this model and device with other degrees, or of another release"),
        Value("none", {"recompute": "none"}, "what most recipes of these tables have")),
          bridge_recipes.is_open),
    Guess("^jax-paxml", "attention of XLA's layers", (
        Value("unfused", {"attention": "unfused"}, "the notes name flash attention only for Transformer Engine"),
        Value("cudnn", {"attention": "cudnn"}, "XLA can call cuDNN's")),
          lambda row: "attention" not in row),
    Guess("^dgxc2411-maxtext", "recomputation", (
        Value("all but qkv and output", {"recompute": "core_attn+layernorm+mlp"},
              "remat_policy save_qkv_proj, which computes the output product again in addition"),
        Value("full", {"recompute": "full"}, "the same, and computes queries, keys and values again in addition"),
        Value("none", {"recompute": "none"}, "if XLA saves all that it has memory for"))),
    Guess("^dlperf-", "recomputation", (
        Value("full", {"recompute": "full"}, "--checkpoint-activations in OneFlow's script, args_pretrain_gpt.sh at 5f9d7ae0"),
        Value("none", {"recompute": "none"}, "the script is of one program, and the report does not say it"))),
    Guess("^dlperf-", "OneFlow's messages", (
        Value("overlap", {}, "its actors send while kernels run (arXiv 2110.15032)"),
        Value("do not", {"program": "oneflow without overlap"}, "an adapter for eight GPUs may leave little to hide")),
          lambda row: row["program"] == "oneflow"),
    Guess("^dlperf-", "link inside a host", (
        Value("nvlink2", {}, "NCCL's rings use NVLink where they can"),
        Value("pcie3", {"inside": "pcie3"}, "pairs of GPUs without NVLink")),
          lambda row: row["gpus"] > 1),
    Guess("^mlperf51-", "precision", (
        Value("nvfp4", {"precision": "nvfp4"}, "NVIDIA's own submissions on eight GPUs"),
        Value("fp8", {"precision": "fp8"}, "the config without _fp4")),
          lambda row: row["system"].startswith(cluster_sources.MLPERF_OPEN)),
    Guess("^ml-engineering", "program", (
        Value("fsdp-2023", {"program_release": "fsdp-2023"}, "ZeRO-3 whose gathers overlap, in eager PyTorch"),
        Value("torchtitan-compiled", {"program_release": "torchtitan-compiled"}, "Liger's kernels are fused as a compiler's"))),
    Guess("^mlperf40-resnet50", "sums of gradients between hosts", (
        Value("tree_of_hosts", {"sums": "tree_of_hosts"}, "what NCCL takes for 51 MB on many hosts"),
        Value("two_level", {"sums": "two_level"}, "rings between the hosts"),
        Value("ring", {"sums": "ring"}, "what NCCL takes for large messages on few hosts"),
        Value("tree", {"sums": "tree"}, "a tree of all GPUs")),
          lambda row: row["gpus"] > row.get("gpus_per_host", 8)),
)


def guesses_of(rows):
    """The guesses of a group that concern any of its rows."""
    return [guess for guess in GUESSES if any(re.search(guess.groups, row["group"]) and guess.is_open(row) for row in rows)]


def choices_of(guesses):
    """All choices of a value for each guess, the first values first; a choice is a list of (guess, value)."""
    return [list(zip(guesses, values)) for values in itertools.product(*(guess.values for guess in guesses))]


def with_choice(row, choice):
    """The row with these values where it leaves the facts open."""
    keys = {}
    for guess, value in choice:
        if guess.is_open(row):
            keys.update(value.of(row))
    return {**row, **keys}


def name_of(choice):
    return ", ".join(f"{guess.fact} {value.name}" for guess, value in choice)

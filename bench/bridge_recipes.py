"""What NVIDIA's recipes recompute, whether they hide messages to experts, and where they cut the model, which the tables do not
print.

Recipes: NVIDIA-NeMo/Megatron-Bridge@067f987df (src/megatron/bridge/perf_recipes), and for the tables of container 25.09
scripts/performance/configs of the same repository (deepseek_v3_llm_pretrain.py at 27dfb3df, qwen3_*_llm_pretrain.yaml at
11d3a36e and 48b5204a, whose recompute keys are null, llama3*_llm_pretrain.yaml at 0aa7db37, which have none).
"""

NOT_PRINTED = "as in the recipe"  # how the rows say so

# By model, device and samples of a micro-batch, where the recipe has the degrees of the row.
RECIPES = {
    **{("llama-3-70b", device, samples): "none" for device in ("gb300", "gb200", "h100-sxm-80") for samples in (1, 2)},
    **{("llama-3.1-405b", device, 1): "none" for device in ("gb300", "gb200")},
    ("deepseek-v3", "gb300", 1): "none", ("deepseek-v3", "gb300", 2): "mla_up_proj", ("deepseek-v3", "gb200", 1): "mla_up_proj",
    ("deepseek-v3", "b200", 1): "mla_up_proj", ("kimi-k2", "gb300", 2): "mla_up_proj",
    ("gpt-oss-120b", "gb300", 4): "none", ("gpt-oss-120b", "b300", 4): "none",
    ("gpt-oss-120b", "gb200", 4): "layernorm+moe_act", ("gpt-oss-120b", "b200", 4): "layernorm+moe_act",
    ("gpt-oss-120b", "h100-sxm-80", 1): "layernorm+moe_act",
    **{("qwen3-30b-a3b", device, samples): "none" for device in ("gb300", "gb200", "b300", "b200", "h100-sxm-80")
       for samples in (1, 4, 8)},
    **{("qwen3-235b-a22b", device, samples): "none" for device, samples in (("gb300", 2), ("gb200", 1), ("h100-sxm-80", 1),
                                                                              ("b300", 2))},
    **{("nemotron-3-nano", device, samples): "none" for device in ("gb300", "gb200", "b300", "h100-sxm-80")
       for samples in (1, 2, 4)},
    **{("nemotron-3-super", device, 1): "none" for device in ("gb300", "gb200", "b300", "b200")},
}
# By model, device and precision, where recipes of other precisions say otherwise.
OF_PRECISION = {("gpt-oss-120b", "gb200", "mxfp8"): "none", ("nemotron-3-super", "b300", "nvfp4"): "layernorm+moe_act",
                ("nemotron-3-super", "b200", "mxfp8"): "layernorm+moe_act"}
# By model and device, where all recipes of both have other degrees than the row.
NEAREST = {("deepseek-v3", "b300"): "mla_up_proj"}
# Of container 25.09, by model and device.
OF_2509 = {
    **{("deepseek-v3", device): "mla_up_proj" for device in ("gb200", "b200")},
    ("deepseek-v3", "h100-sxm-80"): "mla_up_proj+mlp",
}


# Modules that predict a further token (recipes/nemotronh/h100/nemotron_3_super.py, mtp_num_layers). The recipe's two modules
# have the same weights, here each has its own.
FURTHER_TOKENS = {"nemotron-3-super": 2}

# Blocks of stages by model and the number of stages of all devices (recipes/deepseek/h100/deepseek_v3.py and kimi_k2.py at
# 067f987df, and for container 25.09 deepseek_v3_llm_pretrain.py).
LAYOUTS = {("deepseek-v3", 16): "Etttt|(tttt|)*14tmL", ("deepseek-v3", 32): "Et|(tt|)*30mL",
           ("kimi-k2", 16): "Etttt|(tttt|)*14tL"}


def layout(row, further):
    """The layout of a row with `further` modules of further tokens, or None."""
    if not row["group"].startswith("bridge-2"):
        return None
    found = LAYOUTS.get((row.get("model"), row.get("pipeline", 1) * row.get("chunks", 1)))
    return found.replace("m", "m" * further) if found else None


def hides_experts(row):
    """Whether messages to experts travel while a second micro-batch computes: overlap_moe_expert_parallel_comm of the recipes in
    MXFP8 whose whole step is a CUDA graph (container 26.06.01), and of Qwen3 235B on H100s (qwen3_workload_base_configs.py at
    01b2977e, moe_a2a_overlap)."""
    if "bridge-260601" in row["group"]:
        return row["precision"] == "mxfp8" and row["model"].startswith(("deepseek", "qwen3", "gpt-oss"))
    return "bridge-2604" in row["group"] and (row.get("model"), row["device"]) == ("qwen3-235b-a22b", "h100-sxm-80")


# Models, device and precision whose recipes launch kernels in CUDA graphs, and which: scripts/performance/configs of the same
# repository at 684a68616 (r0.1.0, enable_cuda_graph captures each block) and 3743c703d (r0.4.0, cuda_graph_scope attn, moe_router
# and moe_preprocess; less is counted as none), and for container 26.06.01 perf_recipes at 067f987df (full_iteration).
GRAPHS = {
    "bridge-2509": {("llama-3-8b", "b200", "fp8"): "all", ("llama-3-8b", "gb200", "fp8 block"): "all",
                    **{("qwen3-30b-a3b", device, "fp8"): "all" for device in ("gb200", "b200")},
                    ("qwen3-235b-a22b", "gb200", "fp8"): "all"},
    "bridge-2604": {**{("deepseek-v3", device, "mxfp8"): "dense" for device in ("gb200", "b300", "b200")},
                    **{("gpt-oss-120b", device, "bf16"): "dense" for device in ("gb300", "b300")},
                    **{("qwen3-235b-a22b", device, "mxfp8"): "dense" for device in ("gb300", "gb200")},
                    ("qwen3-30b-a3b", "b200", "mxfp8"): "dense", ("nemotron-3-nano", "h100-sxm-80", "fp8"): "dense"},
    "bridge-260601": {(model, device, "mxfp8"): "dense" if model == "nemotron-3-nano" else "all" for device in ("gb300", "gb200")
                      for model in ("deepseek-v3", "gpt-oss-120b", "qwen3-30b-a3b", "qwen3-235b-a22b", "nemotron-3-nano")},
}


def graphs(row):
    """The words of parallel.cuda_graphs of a row's recipe, or None."""
    found = next((table for group, table in GRAPHS.items() if row["group"].startswith(group)), {})
    matching = [word for (model, device, precision), word in found.items()
                if row.get("model") == model and row["device"] == device and str(row.get("precision", "")).startswith(precision)]
    return matching[0] if matching else None


def is_not_printed(row):
    return str(row.get("recompute", "")).strip().lower().startswith(NOT_PRINTED)


def is_open(row):
    """Whether the recipe that was found has other degrees than the row, or is of another release."""
    exact = "bridge-26" in row["group"] and (row.get("model"), row["device"], row.get("micro_batch_sequences")) in RECIPES
    return is_not_printed(row) and recompute(row) is not None and not exact


def recompute(row):
    """The words of the recipe of a row that does not print them, or None."""
    model, device = row.get("model"), row["device"]
    if "bridge-2509" in row["group"]:
        return OF_2509.get((model, device), "none")
    if "bridge-26" not in row["group"]:
        return None
    recipe = RECIPES.get((model, device, row.get("micro_batch_sequences")), NEAREST.get((model, device)))
    return OF_PRECISION.get((model, device, row.get("precision")), recipe)

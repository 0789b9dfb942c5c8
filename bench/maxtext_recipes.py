"""What MaxText's recipes say of rows that print only a step: device, sequence length, degrees and recomputation.

Recipes: AI-Hypercomputer/tpu-recipes@c8cfe2f (training/trillium, training/v5p), whose settings are in
AI-Hypercomputer/maxtext@e591f30 (benchmarks/maxtext_trillium_model_configs.py, maxtext_v5p_model_configs.py), and before
28e5097 in MaxText/configs/v5p and v5e. All chips of a slice share the weights (ici_fsdp_parallelism -1) unless a recipe has
other degrees. Slices have copies, except llama3.1-405b's, which share them too (dcn_fsdp_parallelism 2). Recipes compute
blocks again, but for the tensors that they keep, most on the host: queries, keys and values, and in most of these recipes the
output of attention's last product (query_proj, key_proj, value_proj, out_proj). The config then computes norms, attention, MLP
and experts again. Where a recipe keeps other tensors or only the input of a block, the config has full recomputation.
"""
import math

DEVICES = {"v5e": "tpu-v5e", "v5p": "tpu-v5p", "v5": "tpu-v5p", "v6e": "tpu-v6e"}  # the part of a device_type before the -
# By the name of the model in MaxText.
MODELS = {"gpt3-175b": "gpt3-175b", "llama2-70b": "llama-2-70b", "llama3.1-8b": "llama-3.1-8b", "llama3.1-70b": "llama-3.1-70b",
          "llama3.1-405b": "llama-3.1-405b", "mixtral-8x7b": "mixtral-8x7b", "mixtral-8x22b": "mixtral-8x22b",
          "deepseek3-671b": "deepseek-v3", "gemma3-12b": "gemma3-12b"}
SHAPES = {"mistral-7b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000}}
SEQUENCES = {"gpt3-175b": 2048, "llama2-70b": 4096, "mixtral-8x7b": 4096, "mixtral-8x22b": 4096, "gemma3-12b": 32768}
USUAL_SEQUENCE = 8192
DEGREES = {"v5p/GPT3-175B-MaxText": {"tensor": 8}, "v5p/Llama4-Maverick-17B-128E-Maxtext": {"tensor": 4},
           "trillium/Mixtral-8x22B-MaxText": {"expert": 4}}
KEEPS_QKV = ("trillium/Llama2-70B", "trillium/Llama3.1-70B", "trillium/Llama3.1-8B", "trillium/Mistral", "trillium/Mixtral",
             "v5p/Llama4-Maverick")  # folders; of v5e's scripts only 128b.sh (qkv_proj_offloaded)
V5E_SEQUENCE, V5E_BATCH, V5E_HEAD_WIDTH = 2048, {16: 6, 32: 4, 64: 2, 128: 1}, 128
# Recipes that multiply in int8: GPT3-175B's on v6e, whose folder is named fp8, and on v5p (quantization int8, in all three
# products by _get_int8_quant_config of layers/quantizations.py). Chips with int8's rates in the place of fp8's, as Google states
# them (docs.cloud.google.com/tpu/docs, v5p and v6e): no product in int8 was found measured.
INT8 = ("trillium/GPT3-175B-MaxText/fp8", "v5p/GPT3-175B-MaxText")
INT8_KINDS = {
    "tpu-v5p": {"peak": {"bf16": "459 TFLOP/s", "fp8": "918 TFLOP/s"}, "memory": "95 GiB", "memory_bandwidth": "2765 GB/s",
                "link": "ici-v5p", "source": "int8 for fp8"},
    "tpu-v6e": {"peak": {"bf16": "918 TFLOP/s", "fp8": "1836 TFLOP/s"}, "best": {"bf16": "727.7 TFLOP/s"}, "memory": "32 GiB",
                "memory_bandwidth": "1638 GB/s", "link": "ici-v6e", "source": "int8 for fp8"}}
PLAN = {"zero": 3, "micro_batches": 1, "recompute": "full", "pipeline": 1}


def all_but_qkv(model):
    return "layernorm+core_attn+" + ("mlp+moe+shared_experts" if "llama4" in model else "moe" if "mixtral" in model else "mlp")


def of_recipe(row):
    """The keys of a row of tpu-recipes."""
    model, device = row["model"], DEVICES[row["device_type"].split("-")[0]]
    found = {**PLAN, "device": device, "gpus": row["devices"], "sequence_tokens": SEQUENCES.get(model, USUAL_SEQUENCE),
             "step_s": row["step_s"], **DEGREES.get(row["folder"], {})}
    found.update({"model": None, **SHAPES[model]} if model in SHAPES else {"model": MODELS.get(model, model)})
    if row["folder"].startswith(INT8):
        found.update({"precision": "fp8", "kinds": {device: INT8_KINDS[device]}})
    if row["folder"].startswith(KEEPS_QKV):
        found["recompute"] = all_but_qkv(model)
    if row["slices"] > 1:
        found["zero1_group_gpus"] = row["devices"] // row["slices"]
    return found


def of_scale(row):
    """The keys of a row of MaxText's README: models that are base.yml's, scaled by powers of two (pyconfig.py)."""
    steps = int(math.log2(row["parameters_b"]))
    cycles, rest = divmod(steps, 3)
    heads, hidden = cycles + (rest > 0), cycles + (rest > 1)
    shape = {"hidden": 2048 << hidden, "layers": 16 << cycles, "heads": 16 << heads, "kv_heads": 16 << heads,
             "ffn": 7168 << heads, "vocab": 32000, "head_dim": V5E_HEAD_WIDTH}
    tensor = 16 if row["parameters_b"] == 128 else 1
    found = {**PLAN, **shape, "gpus": row["chips"], "sequence_tokens": V5E_SEQUENCE, "tensor": tensor,
             "global_batch_sequences": V5E_BATCH[row["parameters_b"]] * row["chips"],
             "tflops_per_gpu": row["tflops_per_chip"], "source_flops_per_token": counted_flops(shape, V5E_SEQUENCE)}
    if row["parameters_b"] == 128:
        found["recompute"] = all_but_qkv("")
    if row["slices"] > 1:
        found["zero1_group_gpus"] = row["chips"] // row["slices"] // tensor
    return found


def counted_flops(shape, sequence):
    """FLOPs of a token as MaxText counts them (maxtext_utils.py at c17db0d): attention to all tokens, 3 for the passes."""
    hidden, width = shape["hidden"], shape["heads"] * shape["head_dim"]
    layer = 2 * 3 * shape["ffn"] * hidden + 2 * hidden * 3 * width + 2 * hidden * width + 4 * sequence * width
    return 3 * (layer * shape["layers"] + 2 * hidden * shape["vocab"])


def complete(row):
    """Adds to a row of MaxText what its recipe says."""
    if row["software"] != "MaxText":
        return
    if "device_type" in row and "folder" in row:
        row.update(of_recipe(row))
        if not row["model"]:
            del row["model"]
    elif "parameters_b" in row and "chips" in row and row.get("device") == "tpu-v5e":
        row.update(of_scale(row))

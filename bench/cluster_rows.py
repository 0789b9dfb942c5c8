"""Rows of measured training runs on clusters, and a config for each.

A file has `groups`, each a table of one source: `id`, `source`, `software`, `common` (keys of every row), `columns`, and `rows`,
lists of values in the order of `columns`; null is not printed. The keys:

device, gpus, gpus_per_host, inside, between         the cluster; links by the names of LINKS
model, or hidden, layers, heads, kv_heads, ffn, vocab      a preset of workloads/models/transformers.yaml, dimensions, or both
sequence_tokens, micro_batch_sequences, global_batch_sequences, tokens_per_batch    per update, all replicas
micro_batches, accumulation                          of a replica
tensor, pipeline, context, expert, expert_tensor, data, chunks    degrees; data follows from the others, chunks are virtual stages
shard                                                the GPUs that share weights: full, hybrid (of a host), or their number
schedule, sequence_parallel, zero, zero_group, zero1_group_gpus, recompute, attention, fused_norms, cuda_graphs, precision,
optimizer
result                                               ok or oom
step_s, step_ms, tokens_per_s, tokens_per_s_per_gpu, samples_per_s, tflops_per_gpu    the first that is printed counts
memory_*_gib, _gb, _mib                              per GPU; with first_stage or last_stage of one stage, total of all GPUs,
                                                     by_stage a list

What a config cannot express raises Unexpressed with the reason.
"""
import json
import math
import re

import yaml

import bridge_recipes
import cluster_layers
import cluster_sources
from model_flops import NAMES, flops_per_token, of_dimensions, with_dimensions, with_positions

# Words of the rows without what follows in brackets, and what the config calls them.
SCHEDULES = {"zb heuristic": "zb1p", "interleaved 1f1b": "interleaved", "1f1b interleaved": "interleaved"}
EVERY_SECOND_BLOCK = {"kind": "full", "every": 2}
RECOMPUTE = {
    "none": "none", "not stated": "none", "selective": "selective", "full": "full", "norm+activation": "norms",
    "selective (every other layer)": EVERY_SECOND_BLOCK,
    "selective (per operator)": "operators",
}
DISPATCHERS = {"deepep": "deepep", "all-to-all": "alltoall", "gathered": "gathered"}
# Joined by + as in the config.
MODULES = {"core_attn", "layernorm", "mlp_act", "mlp", "moe_act", "moe", "shared_experts", "mla_up_proj"}
PRECISIONS = ("mxfp8", "nvfp4", "fp8", "bf16", "fp16", "tf32", "fp32")
# Each GPU of a host has an adapter, or the host has the number given.
LINKS = {
    "ib-hdr200": ("hdr200", None), "ib-hdr200-per-gpu": ("hdr200", None), "ib-ndr400": ("ndr400", None),
    "ib-ndr400-per-gpu": ("ndr400", None), "rdma-400-per-gpu": ("ndr400", None), "roce-400-per-gpu": ("ndr400", None),
    "ib-xdr800-per-gpu": ("xdr800", None),
    "roce-1600-per-host": ("hdr200", 8),  # 25 GB/s each
    "roce-4x100-per-host": ("roce100", 4), "omnipath-4x100-per-host": ("roce100", 4),
    "800 gb/s per host": ("hdr200", 4), "ib-edr100 per host": ("roce100", 1),
}
# Where a row names no link between hosts: that of the vendor's reference system.
USUAL_LINKS = {"v100": "ib-hdr200-per-gpu", "a100": "ib-hdr200-per-gpu", "tpu-v5e": "dcn-25-per-gpu",
               "tpu-v5p": "dcn-50-per-gpu", "tpu-v6e": "dcn-100-per-gpu", "tpu-v7": "dcn-100-per-gpu"}
USUAL_LINK = "ib-ndr400-per-gpu"
# Devices whose fast links go beyond the host: GPUs of a host, of a domain (a pod of TPUs, docs/clusters.md).
DOMAINS = {"gb200": (4, 72), "gb300": (4, 72), "tpu-v5e": (8, 256), "tpu-v5p": (4, 8960), "tpu-v6e": (8, 256),
           "tpu-v7": (4, 9216)}
# Which a device may have instead of its own link.
LINKS_INSIDE = {"pcie3": {"bandwidth": "15.75 GB/s", "latency": "5.7 us"}, "pcie4": "pcie4", "pcie5": "pcie5"}

# What the training program overlaps and fuses: the first pattern found in the group's name and software, with keys of the row.
RELEASES = (
    # One compiled program, flash attention, ZeRO-3 overlapped.
    (r"^(tpu-.*|maxtext-v5e|dgxc2411-maxtext|jax-paxml)", {}, {"release": "torchtitan-compiled"}),
    (r"torchtitan", {"compile": 1}, {"release": "torchtitan-compiled"}),
    (r"torchtitan", {}, {"release": "torchtitan"}),
    (r"llm-foundry", {}, {"release": "fsdp-2023"}),
    # What the program of these groups overlaps is not stated.
    (r"layouts-", {"fused_rmsnorm_kernel": 0}, {"release": "scaling-2023", "fused_norms": False}),
    (r"layouts-", {}, {"release": "scaling-2023"}),
    (r"simumax", {}, {"release": "nemo-2024", "overlap": []}),  # all overlaps switched off
    (r"flagperf-70b", {"model": "llama-2-70b"}, {"release": "megatron-2023"}),
    (r"flagperf-70b", {}, {"release": "nemo-2024", "overlap": ["tensor_backward"]}),
    (r"flagperf-paddle", {}, {"release": "paddle-2023"}),
    (r"DeepSpeed|bigscience|vtrain", {}, {"release": "deepspeed-2022"}),
    # Actors send while kernels run (OneFlow, arXiv 2110.15032).
    (r"dlperf", {"program": "oneflow"}, {"release": "megatron-2021", "overlap": ["data", "pipeline"]}),
    (r"dlperf", {}, {"release": "megatron-2021"}),
    (r"Megatron-LM 20(19|20|21)", {}, {"release": "megatron-2021"}),
    (r"Megatron-LM 2022", {}, {"release": "megatron-2022"}),
    (r"InternEvo", {}, {"release": "nemo-2023", "overlap": ["tensor_backward"]}),
    (r"ModelLink", {}, {"release": "nemo-2024", "overlap": []}),
    (r"ngc23\.0[4-8]|NeMo 23\.0[4-8]", {}, {"release": "nemo-2023"}),
    (r"ngc23|ngc24|NeMo 2[34]\.", {}, {"release": "nemo-2024"}),
    (r"ngc25|NeMo 2[5-9]\.|NeMo / Megatron-Core|Megatron-Core dev", {}, {"release": "nemo-2025"}),
)
# Groups whose program has no release here, so that they have the release of the nearest program: JAX, InternEvo,
# modalities, ModelLink, Megatron-Bridge of 2026, the many submitters of MLPerf, and Transformers with DeepSpeed and Liger.
OTHER_PROGRAMS = (r"^(tpu-|maxtext-|dgxc2411|jax-paxml|bridge-26|internevo|modalities|mlperf51|ml-engineering|"
                  r"modellink)")

# What the notes of a group say of all its rows, where the rows do not.
ASSUMED = (
    (r"torchtitan|megatron-2020", {"micro_batches": 1}),  # torchtitan accumulates no gradients unless told to
)

# What recipes say of messages to experts, by model and device (NVIDIA-NeMo/Megatron-Bridge@067f987df,
# src/megatron/bridge/perf_recipes). The remaining recipes of rows with experts have DeepEP or HybridEP.
RECIPES_OF_EXPERTS = {("qwen3-235b-a22b", "h100-sxm-80"): {"dispatcher": "all-to-all", "overlap": "all-to-all"}}

# Adapters of runs that print none, by the number of layers: NeMo's recipes for fine-tuning with LoRA (recipes/llama3_8b.py and
# llama3_70b.py of NVIDIA-NeMo/NeMo, performance_mode), which do not divide the state of the optimizer.
LORA_RANKS = {32: 8, 80: 16}

NUMBERS = (*NAMES, "gpus", "gpus_per_host", "sequence_tokens", "micro_batch_sequences", "global_batch_sequences",
           "micro_batches", "tokens_per_batch", "tensor", "pipeline", "context", "expert", "expert_tensor",
           "data", "chunks", "zero")
BYTES = {"gib": 2**30, "gb": 1e9, "mib": 2**20, "mb": 1e6}


class Unexpressed(Exception):
    pass


def groups_of(path):
    """[{id, source, rows}] of a file in any of its forms; a row has the keys of its group, and none without a value."""
    with open(path) as file:
        content = yaml.safe_load(file)
    if isinstance(content, list):
        return large_models(content)
    if "groups" not in content:
        return [modellink(content)]
    groups = []
    for group in content["groups"]:
        about = {"group": group["id"], "software": str(group.get("software", "")), **group.get("common", {})}
        rows = [{**about, **dict(zip(group["columns"], row, strict=True))} for row in group["rows"]]
        groups.append({"id": group["id"], "source": str(group["source"]),
                       "rows": [{key: value for key, value in row.items() if value is not None} for row in rows]})
    for group in groups:
        for row in group["rows"]:
            cluster_sources.complete(row)
        complete(group["rows"])
        cluster_layers.calibrate(group["rows"])
    return groups


def complete(rows):
    """Adds to rows what other rows of their group say."""
    heads = {row["heads"] for row in rows if "heads" in row}
    counts = {(model_key(row), row.get("sequence_tokens")): row["tflops_per_gpu"] * 1e12 / row["tokens_per_s_per_gpu"]
              for row in rows if "tflops_per_gpu" in row and "tokens_per_s_per_gpu" in row}
    for row in rows:
        if "hidden" in row and "heads" not in row and len(heads) == 1:
            row["heads"] = next(iter(heads))
        count = counts.get((model_key(row), row.get("sequence_tokens")))
        if count:
            row.setdefault("source_flops_per_token", count)


def model_key(row):
    return tuple(row.get(key) for key in ("model", *NAMES))


def large_models(entries):
    """The groups of data/published/large-models.yaml: tables 3 and 5 of arXiv 2205.05198."""
    groups = []
    for name, plan in (("full", "full"), ("selective", "selective+sequence")):
        identity = f"published-large-models-{name}"
        common = {"group": identity, "software": "Megatron-LM 2022", "device": "a100-sxm-80", "gpus_per_host": 8,
                  "between": "ib-hdr200-per-gpu", "vocab": 51200, "sequence_tokens": 2048, "precision": "fp16",
                  "recompute": name, "sequence_parallel": name == "selective", "zero": 0}
        rows = [{**common, **{key: entry[key] for key in ("hidden", "heads", "layers", "gpus", "tensor", "pipeline")},
                 "chunks": entry["v"], "global_batch_sequences": entry["batch"],
                 "micro_batch_sequences": entry["micro_batch"], "step_s": entry["seconds"][plan]} for entry in entries]
        groups.append({"id": identity, "source": "arXiv 2205.05198", "rows": rows})
    return groups


# Vocabularies of models whose rows do not print them, by their config.json on Hugging Face.
VOCABULARIES = {"aquila-7b": 100008, "baichuan-13b": 64000, "baichuan2-7b": 125696, "bloom-7b": 250880, "bloom-176b": 250880,
                "internlm-65b": 103168, "mixtral-8x7b": 32000, "qwen-7b": 151936, "qwen-72b": 152064}


def modellink(content):
    """The group of DATA_DIR/witness/ascend/modellink_910.yaml: its kind of card is assumed, its program is of early 2024."""
    names = {"cards": "gpus", "sequence_length": "sequence_tokens", "micro_batch_size": "micro_batch_sequences",
             "global_batch": "global_batch_sequences", "blocks": "layers", "inner": "ffn", "key_value_heads": "kv_heads",
             "tokens_per_s_card": "tokens_per_s_per_gpu"}
    common = {"group": "modellink-ascend-910b", "software": "ModelLink 1.0", "device": "ascend-910b", "gpus_per_host": 8,
              "between": "200 Gbit/s per GPU", "zero": 0}
    rows = []
    for entry in content["rows"]:
        row = {names.get(key, key): value for key, value in entry.items() if value is not None}
        row = {**common, **row, "vocab": VOCABULARIES.get(entry["model"], 32000)}
        if row.pop("model").startswith("mixtral"):
            # Each expert is divided among the tensor ranks, which gather their tokens (SwitchMLP of Megatron-LM@bcce6f,
            # which the page of the model names).
            row.update({"model": "mixtral-8x7b", "expert_tensor": row["tensor"], "dispatcher": "gathered"})
        if "implied_tokens_per_s_card" not in row:
            row.pop("step_s", None)
        rows.append(row)
    return {"id": common["group"], "source": content["source"]["repository"], "rows": rows}


def model_of(row, models):
    """(config.json, its name if it is a preset as it is)."""
    given = {key: row[key] for key in NAMES if key in row}
    if "model" in row:
        if row["model"] in cluster_sources.CONFIGS:
            return with_dimensions(cluster_sources.CONFIGS[row["model"]], given), None
        if row["model"] not in models:
            raise Unexpressed(f"no facts of the model {row['model']}")
        preset = models[row["model"]]
        changed = with_dimensions(preset, given)
        return changed, row["model"] if changed == preset else None
    for key in ("hidden", "layers", "heads", "vocab"):
        if key not in row:
            raise Unexpressed(f"{key} of the model not printed")
    return of_dimensions(given), None


def word(value):
    return str(value).split("(")[0].strip().lower()


def devices_per_host(row):
    usual = DOMAINS.get(row["device"], (8, 0))[0]
    return min(row["gpus"], row.get("gpus_per_host", usual))


def cluster_of(row):
    device, gpus, per_host = row["device"], row["gpus"], devices_per_host(row)
    per_host = math.gcd(gpus, per_host)
    cluster = {"hosts": gpus // per_host, "devices_per_host": per_host, "device": device}
    inside = word(row.get("inside", ""))
    if inside in LINKS_INSIDE and "pcie" not in device:
        cluster["inside"] = LINKS_INSIDE[inside]
    if device in DOMAINS:
        cluster["domain"] = DOMAINS[device][1]
    if gpus > per_host:
        usual = next((link for kind, link in USUAL_LINKS.items() if device.startswith(kind)), USUAL_LINK)
        name = word(row.get("between", usual))
        if name in ("not stated", "unstated", ""):
            name = usual
        if name in LINKS:
            link, adapters = LINKS[name]
            cluster["between"] = {"link": link, "adapters": adapters or per_host}
        else:
            cluster["between"] = link_in_words(name, per_host)
    return cluster


def link_in_words(name, per_host):
    """Links like roce-8x200-per-host, efa-400-per-gpu, slingshot-800-per-host, 25 GB/s per GPU; numbers are Gbit/s."""
    form = re.search(r"(?:(\d+)\s*x\s*)?([\d.]+)\s*(gb/s|gbit/s|gbps)?[ -]*per[ -](gpu|host)", name)
    if not form:
        raise Unexpressed(f"link {name} between hosts")
    count, rate, unit, of = form.groups()
    rate = float(rate)  # "Gb/s" is bits in the rows, as in "800 Gb/s per host"
    adapters = int(count) if count else per_host
    if of == "host" and not count:
        rate /= per_host
    return {"bandwidth": f"{rate:g} Gbit/s", "latency": "14 us", "adapters": adapters}


def replicas_of(row):
    """Replicas of the model."""
    by_model = row.get("tensor", 1) * row.get("pipeline", 1) * row.get("context", 1)
    replicas, rest = divmod(row["gpus"], by_model)
    shard = row["shard"] if isinstance(row.get("shard"), int) else 1
    if rest or row.get("data", replicas) not in (replicas, replicas / shard):
        raise Unexpressed(f"{row['gpus']} GPUs are not {by_model} x data {row.get('data', '')}".rstrip())
    return replicas


def sharing_of(row):
    """The keys of what replicas share."""
    shard = row.get("shard")
    # Megatron-Bridge's rows name the group of FSDP, or have the distributed optimizer.
    usual = (3 if row["fsdp_group"] else 1) if "fsdp_group" in row else 3 if shard not in (None, 1) else 0
    found = {"zero": row.get("zero", usual)}
    if shard == "hybrid":
        found["zero_group"] = devices_per_host(row)
    elif isinstance(shard, int) and shard > 1:
        found["zero_group"] = shard
    for key in ("zero_group", "zero1_group_gpus"):
        if isinstance(row.get(key), int):
            found["zero_group"] = row[key]
    return found


def release_of(row):
    if "program_release" in row:
        return {"release": row["program_release"]}
    about = f"{row['group']}, {row['software']}"
    # A100s and V100s in fp16 without a known program: Megatron-LM of that time.
    usual = {"release": "megatron-2021"} if row["device"][:4] in ("a100", "v100") and "fp16" in str(row.get("precision")) else {}
    return next((release for pattern, keys, release in RELEASES
                 if re.search(pattern, about) and all(row.get(key) == value for key, value in keys.items())), usual)


def program_of(row):
    """Whether the release of a row is of the program that ran: "named", "nearest" if it is of another program or year, and
    None for layers that are no transformer."""
    if cluster_layers.is_of_layers(row):
        return None
    return "nearest" if re.search(OTHER_PROGRAMS, row["group"]) else "named"


def recompute_of(row):
    text = str(row.get("recompute", "none")).strip().lower()
    if bridge_recipes.is_not_printed(row):
        found = bridge_recipes.recompute(row)
        if found is None:
            raise Unexpressed(f"recompute {text}")
        return found
    if set(text.split("+")) <= MODULES:
        return text
    found = RECOMPUTE.get(text, RECOMPUTE.get(word(text)))
    if found is None:
        share = re.search(r"(\d+)\s*(?:of|/)\s*(\d+)", text)
        if share:
            found = {"kind": "full", "share": int(share.group(1)) / int(share.group(2))}
        else:
            found = next((kind for kind in ("full", "selective") if kind in text), None)
    if found is None:
        raise Unexpressed(f"recompute {text}")
    return found


def parallel_of(row):
    if "bridge-26" in row["group"]:
        row = {**RECIPES_OF_EXPERTS.get((row.get("model"), row["device"]), {}), **row}
    tensor = row.get("tensor", 1)
    parallel = {"tensor": tensor, "pipeline": row.get("pipeline", 1), "context": row.get("context", 1),
                "expert": row.get("expert", 1)}
    if "expert_tensor" in row:
        parallel["expert_tensor"] = row["expert_tensor"]
    if "dispatcher" in row:
        if row["dispatcher"] not in DISPATCHERS:
            raise Unexpressed(f"dispatcher {row['dispatcher']}")
        parallel["expert_dispatcher"] = DISPATCHERS[row["dispatcher"]]
    if tensor > 1:
        parallel["sequence"] = bool(row.get("sequence_parallel", True))
    if "all-to-all" in str(row.get("overlap", "")):
        parallel["overlap"] = ["tensor", "tensor_backward", "data", "pipeline", "expert"]
    parallel.update(sharing_of(row))
    if "flash_attention" in row:
        parallel["attention"] = "flash" if row["flash_attention"] else "unfused"
    if "attention" in row:
        parallel["attention"] = row["attention"]
    if "cuda_graphs" in row:
        parallel["cuda_graphs"] = row["cuda_graphs"]
    found = {**parallel, "recompute": recompute_of(row), **release_of(row)}
    return {**found, "fused_norms": row["fused_norms"]} if "fused_norms" in row else found


def batch_of(row):
    """(samples per update of all replicas, samples per micro-batch)."""
    for pattern, assumed in ASSUMED:
        if re.search(pattern, row["group"]):
            row = {**assumed, **row}
    replicas, size = replicas_of(row), row.get("micro_batch_sequences")
    count = row.get("micro_batches", row.get("accumulation"))
    batch = row.get("global_batch_sequences")
    if batch is None and "tokens_per_batch" in row and "sequence_tokens" in row:
        batch = round(row["tokens_per_batch"] / row["sequence_tokens"])
    if batch is None and size and count:
        batch = replicas * size * count
    if batch and count and not size:
        size = max(1, batch // (replicas * count))
    if batch and not size and row.get("pipeline", 1) > 1:
        size = 1  # what pipelines have where it is not printed
    if not batch or not size:
        raise Unexpressed("neither batch nor micro-batch printed" if not batch and not size else
                          "batch not printed" if not batch else "micro-batch not printed")
    if batch % replicas:
        raise Unexpressed(f"batch {batch} is not divided by {replicas} replicas")
    size = max(part for part in range(1, min(size, batch // replicas) + 1) if batch // replicas % part == 0)
    return batch, size


def pipeline_of(row):
    stages, chunks = row.get("pipeline", 1), row.get("chunks", 1)
    schedule = word(row.get("schedule", "1f1b"))
    schedule = SCHEDULES.get(schedule, schedule.replace(" ", "-"))
    if stages == 1:
        chunks = 1
    if schedule in ("1f1b", "interleaved"):
        schedule = "interleaved" if chunks > 1 else "1f1b"
    batch, size = batch_of(row)
    return {"schedule": schedule, "stages": stages * chunks, "mini_batch": batch, "micro_batch_size": size}


def precision_of(row):
    text = word(row.get("precision", "bf16"))
    found = next((name for name in PRECISIONS if name in text.split(" or ")[0]), None)
    if not found:
        raise Unexpressed(f"precision {text}")
    return found


def adapters_of(row, layers):
    kind = word(row.get("fine_tuning", "sft"))
    if kind == "sft":
        return {}
    if kind != "lora" or layers not in LORA_RANKS:
        raise Unexpressed(f"fine-tuning {kind} of {layers} layers")
    return {"lora": {"rank": LORA_RANKS[layers], "targets": ["qkv"]}}


def config_of(row, model, layers=None):
    """The config of a row; `model` is the name of a preset or the path of a file."""
    kinds = {"device_kinds": f"{row['device']}-kinds.yaml"} if "kinds" in row else {}
    return {"workload": {"model": model, "sequence_length": row["sequence_tokens"], **adapters_of(row, layers)},
            "cluster": {**cluster_of(row), **kinds},
            "parallel": parallel_of(row), "pipeline": pipeline_of(row),
            "training": {"precision": precision_of(row), "optimizer": row.get("optimizer", "adamw"),
                         **({"gradient_type": row["gradient_type"]} if "gradient_type" in row else {})}}


def step_seconds(row, batch):
    """The measured time of an update of `batch` samples; TFLOP/s count only if the source's FLOPs per token are known."""
    tokens = batch * row.get("sequence_tokens", 0)
    if "step_s" in row:
        return row["step_s"]
    if "step_ms" in row:
        return row["step_ms"] / 1e3
    if "tokens_per_s" in row:
        return tokens / row["tokens_per_s"]
    if "tokens_per_s_per_gpu" in row:
        return tokens / (row["tokens_per_s_per_gpu"] * row["gpus"])
    for key in ("samples_per_s", "images_per_s"):
        if key in row:
            return batch / row[key]
    if "tflops_per_gpu" in row and "source_flops_per_token" in row:
        return tokens * row["source_flops_per_token"] / (row["tflops_per_gpu"] * 1e12 * row["gpus"])
    raise Unexpressed("no time, tokens or samples per second printed")


def measured_memory(row):
    """The bytes that a row prints, by fullest (of all GPUs), first and last (of the stages), stage N, and total."""
    found = {}
    for key, value in row.items():
        form = re.fullmatch(r"memory(_\w+?)??_(gib|gb|mib|mb)(_by_stage)?", key)
        if form:
            name, unit = form.group(1) or "", BYTES[form.group(2)]
            for stage, part in enumerate(value if form.group(3) else ()):
                found[f"stage {stage}"] = (0, part * unit)
            if form.group(3):
                value = max(value)
            of = next((of for of in ("first", "last", "total") if of in name), "fullest")
            rank = 0 if "allocated" in name else 2 if "reserved" in name else 1
            found[of] = min(found.get(of, (9, 0)), (rank, value * unit))
    return {of: value for of, (_, value) in found.items()}


def describe(row, models):
    """(config, a file of its model if that is not a preset or None, FLOPs of a sample) of a row."""
    if cluster_layers.is_of_layers(row):
        return describe_layers(row)
    if row.get("offload", "none") != "none":
        raise Unexpressed(f"{row['offload']} on the host")
    for key in NUMBERS:
        if key in row and not isinstance(row[key], (int, float)):
            raise Unexpressed(f"{key} {row[key]}")
    for key in ("device", "gpus", "sequence_tokens"):
        if key not in row:
            raise Unexpressed(f"{key} not printed")
    model, preset = model_of(row, models)
    own = None if preset else with_positions(model, row["sequence_tokens"])
    config = config_of(row, preset or f"{name_of_model(row)}/config.json", model.get("num_hidden_layers"))
    further = further_tokens(row, model)
    if further:
        config["workload"]["mtp_layers"] = further
    layout = bridge_recipes.layout(row, further)
    if layout:
        config["pipeline"]["split"] = layout
    flops = flops_per_token(model, row["sequence_tokens"], further)
    if row.get("counts_model_flops"):
        row["source_flops_per_token"] = flops
    return config, own, flops * row["sequence_tokens"]


def describe_layers(row):
    if row.get("calibrates"):
        raise Unexpressed("the row that gives the rate of the device")
    if row["model"].startswith("amoebanet"):
        raise Unexpressed("layers of AmoebaNet-D")
    return cluster_layers.describe(row)


def further_tokens(row, model):
    """The number of modules that predict a further token. Rows do not print it, so it is the recipe's number. DeepSeek-V3 has one
    module where the source's count of FLOPs per token is nearer to the count with the module."""
    if row.get("model") in bridge_recipes.FURTHER_TOKENS:
        return bridge_recipes.FURTHER_TOKENS[row["model"]]
    counted = row.get("source_flops_per_token")
    if not counted or not str(model["model_type"]).startswith("deepseek_v3"):
        return 0
    return min((0, 1), key=lambda further: abs(flops_per_token(model, row["sequence_tokens"], further) - counted))


def name_of_model(row):
    return "-".join([row.get("model", "model"), *(f"{key}{row[key]}" for key in NAMES if key in row),
                     f"sequence{row['sequence_tokens']}"])


def write_config(config, own_model, path, kinds=None):
    """Writes a config, and next to it its model if that is not a preset, and kinds of devices of its own."""
    if kinds:
        (path.parent / config["cluster"]["device_kinds"]).write_text(yaml.safe_dump({"devices": kinds}))
    if own_model:
        model = path.parent / config["workload"]["model"]
        model.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".json")  # other rows read the model meanwhile: it is whole at all times
        part.write_text(json.dumps(own_model, indent=2) + "\n")
        part.replace(model)
    path.write_text(yaml.safe_dump(config, default_flow_style=None, sort_keys=False, width=200))

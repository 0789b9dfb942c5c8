"""What the sources of rows say beyond their tables: scripts, configs and notes, each named where it is used."""
import re

import bridge_recipes
import maxtext_recipes

# Rows of PaddleNLP and Pax name GPT-3's sizes: NeMo-Launcher@80353286 (conf/training/gpt3), arXiv 2005.14165 (table 2.1). Their
# vocabulary is 50304 (PaddleNLP, paxml/contrib/gpu/scripts_gpu/configs.py), for Pax's 175B 50257.
GPT3 = {"gpt3-126m": {"hidden": 768, "layers": 12, "heads": 12}, "gpt3-6.7b": {"hidden": 4096, "layers": 32, "heads": 32},
        "gpt3-13b": {"hidden": 5120, "layers": 40, "heads": 40}}
GPT_VOCABULARY = 50304

# Llama 4 in the form of a config.json (AI-Hypercomputer/maxtext@e591f30, src/maxtext/configs/models/llama4-17b-*.yml). Its chunks
# of attention are as long as the sequences of the rows.
LLAMA4 = {"model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
          "num_key_value_heads": 8, "vocab_size": 202048, "moe_intermediate_size": 8192, "n_shared_experts": 1,
          "num_experts_per_tok": 1}
CONFIGS = {"llama4-scout-17b-16e": {**LLAMA4, "intermediate_size": 8192, "num_local_experts": 16},
           "llama4-maverick-17b-128e": {**LLAMA4, "intermediate_size": 16384, "num_local_experts": 128, "decoder_sparse_step": 2}}

# mlcommons/training_results_v5.1@4da2d1cd, config_*.sh of each submitter: tensor and context ranks by kind of device and GPUs.
MLPERF_DEGREES = {("h100-sxm-80", 128): (2, 1), ("h200-sxm-141", 64): (1, 2),
                  **{("b200", gpus): (1, 2) for gpus in (64, 128, 256)},
                  ("gb200", 72): (1, 2), ("gb300", 72): (1, 2), ("gb200", 512): (2, 4), ("gb300", 512): (2, 4)}
MLPERF_HOSTS = {"University-of-Florida hpg.dgxb200x8.n4": (1, 2)}
# What they multiply in: a config that sources config_common_fp4.sh, or whose name ends in _fp4, in NVFP4, others in fp8.
MLPERF_NVFP4 = ("NVIDIA theia_ngpu8", "NVIDIA tyche_ngpu8", "Nebius", "Dell 1xXE9680L")
# Both kinds of config are shipped, or none: cluster_guesses.py tries both.
MLPERF_OPEN = ("Lenovo", "Oracle 1x", "Supermicro AS-4126GS", "Supermicro SYS-422GS")


def of_mlperf(row):
    tensor, context = MLPERF_HOSTS.get(row["system"], MLPERF_DEGREES.get((row["device"], row["gpus"]), (1, 1)))
    row.update(tensor=tensor, context=context)
    if not row["system"].startswith(MLPERF_OPEN):
        row["precision"] = "nvfp4" if row["system"].startswith(MLPERF_NVFP4) else "fp8"


def of_modalities(row):
    """GPT-2's words, padded. BF_16 of the table sums gradients in bf16 (src/modalities/running_env/env_utils.py, bfSixteen)."""
    row.update({"vocab": GPT_VOCABULARY, "gradient_type": "bf16"})


def of_llm_foundry(row):
    """mixed_precision: PURE sums gradients in bf16 (mosaicml/composer, composer/trainer/mosaic_fsdp_utils.py)."""
    row["gradient_type"] = "bf16"


def of_finetuning(row):
    """NVIDIA/NeMo, nemo/collections/llm/recipes/llama3_8b.py and llama3_70b.py, performance_mode: gradients are summed in bf16, and
    adapters alone switch the distributed optimizer off."""
    row["gradient_type"] = "bf16"
    if row["fine_tuning"] == "sft":
        row["zero"] = 1


def of_pax(row):
    """paxml/contrib/gpu/scripts_gpu/configs.py: 5B saves products without a dimension of the batch, 175B nothing by default."""
    row["vocab"] = 50257 if row["model"] == "gpt3-175b" else GPT_VOCABULARY
    row.setdefault("recompute", {"gpt3-126m": "none", "gpt3-5b": "core_attn+layernorm+mlp_act"}.get(row["model"], "full"))
    if row["layers_by"] == "transformer engine" and (row["release"], row["model"]) != ("24.04", "gpt3-126m"):
        row["attention"] = "cudnn"


def of_dgxc_maxtext(row):
    """maxtext/configure.sh at 0b71cfda: cuDNN's attention. remat_policy save_qkv_proj: cluster_guesses.py."""
    row["attention"] = "cudnn"


def of_flagperf(row):
    """pretrain_llama3.sh and megatron_main.sh of the same repository: flash attention, sequence parallelism and the distributed
    optimizer, and no argument that overlaps messages. The notes give the batches of two rows. The experts of Megatron-Core
    0.6.0 are divided among the tensor ranks (megatron/core/transformer/moe/experts.py), which gather their tokens
    (moe_token_dispatcher_type allgather, the default). Llama 2 has Megatron-LM's own layers (no --transformer-impl), and its
    recompute=True is --recompute-activations, which is selective (training/benchmarks/llama2_70B/megatron/megatron_main.sh).
    FlashAttention takes no fp32. With sequence parallelism gathers and scatters of the backward always overlap the gradients
    of weights (megatron/core/tensor_parallel/layers.py, and Transformer Engine's linear layers)."""
    row.update({"zero": 1, "attention": "flash"})
    if row["precision"] == "tf32":
        row.update({"attention": "unfused", "recompute": "selective"})
    if row["model"] == "mixtral-8x7b":
        row.update({"micro_batch_sequences": 3, "expert_tensor": row["tensor"], "dispatcher": "gathered"})


def of_paddle(row):
    """PaddleNLP: tensor parallelism without sequence parallelism unless asked for, which the configs do not. Its norms are fused
    but in the rows of 40 GB (notes)."""
    row["sequence_parallel"] = False
    if row["device"] == "a100-sxm-40":
        row["fused_norms"] = False
    if row["model"] in GPT3:
        row["vocab"] = GPT_VOCABULARY


def of_ml_engineering(row):
    """FlashAttention-3 and 4, whose rates cuDNN's are nearest to. benchmark.py counts as model_flops.py does: 6 for each weight
    of products, attention to earlier tokens only, and nothing that is computed again."""
    row.update({"attention": "cudnn", "counts_model_flops": True})


def of_nemo_launcher(row):
    """The table came on 2022-09-06 (a2b2f83a of NVIDIA/NeMo-Framework-Launcher) and stayed in later versions of the page. The
    5b.yaml of that commit has micro-batches of 2, 0 blocks that recompute, and no flash attention, which NeMo did not have yet."""
    row.update({"program_release": "megatron-2022", "micro_batch_sequences": 2, "recompute": "none"})


def of_2021(row):
    """Sequence parallelism came to Megatron-LM in 2022 (arXiv 2205.05198), OneFlow of 2021 has none."""
    row["sequence_parallel"] = False


# The reader of the memory of rows without "allocated" in their keys. `allocator`: what PyTorch's allocator holds
# (torch.cuda.max_memory_cached in torchgpipe's benchmarks/unet-memory/main.py, max_reserved in torchtitan's metrics). `driver`:
# what the driver shows as used ("actual/total" of FlagPerf, nvidia-smi of BigScience's chronicles).
MEMORY_READERS = (("^torch(gpipe|titan)", "allocator"), ("^(flagperf|bigscience)", "driver"))

SOURCES = {"dgxc2504-finetune": of_finetuning, "llm-foundry-a100-40": of_llm_foundry, "dlperf-gpt-v100": of_2021,
           "megatron-2020-tensor": of_2021, "mlperf51-llama31-8b": of_mlperf,
           "modalities-leonardo-a100": of_modalities, "jax-paxml-gpt": of_pax,
           "dgxc2411-maxtext-llama2-70b": of_dgxc_maxtext, "flagperf-70b-and-mixtral": of_flagperf,
           "flagperf-paddle-gpt-llama": of_paddle, "nemo-launcher-gpt3-5b": of_nemo_launcher,
           "ml-engineering-h200-b200": of_ml_engineering}


def complete(row):
    """Adds to a row what its source says."""
    maxtext_recipes.complete(row)
    row["memory_read_by"] = next((reader for groups, reader in MEMORY_READERS if re.search(groups, row["group"])), "tensors")
    found = SOURCES.get(row["group"])
    if found:
        found(row)
    if row["group"].startswith("bridge-2"):
        row["gradient_type"] = "bf16"  # grad_reduce_in_fp32 is off in all recipes (bridge_recipes.py names the commits)
        if row.get("model") == "kimi-k2":
            row["optimizer"] = "muon"  # notes
    if bridge_recipes.hides_experts(row):
        row["overlap"] = "all-to-all"
    # XLA launches a step as one program.
    is_of_xla = row["software"] == "MaxText" or row["group"].startswith(("dgxc2411-maxtext", "jax-paxml"))
    graphs = "all" if is_of_xla else bridge_recipes.graphs(row)
    if graphs:
        row["cuda_graphs"] = graphs
    if row.get("model") in GPT3:
        row.update(GPT3[row.pop("model")])

"""Decoder-only transformers in the form of Hugging Face's config.json: changed dimensions, and FLOPs of training."""
import yaml

# What a family calls its dimensions; the first name where it has none.
NAMES = {"hidden": ("hidden_size", "n_embd", "n_embed", "d_model"), "layers": ("num_hidden_layers", "n_layer", "n_layers"),
         "heads": ("num_attention_heads", "n_head", "n_heads"), "kv_heads": ("num_key_value_heads",),
         "ffn": ("intermediate_size", "n_inner"), "vocab": ("vocab_size",), "head_dim": ("head_dim",)}
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
PLAIN = ("gpt2", "mpt", "bloom", "nemotron", "gpt_neox")  # families whose MLP has two matrices; others gate it with a third

WINDOWED = {"gpt_oss": 1 / 2, "gemma2": 1 / 2, "gemma3_text": 5 / 6}  # the share of layers whose attention has a window


def read_models(path):
    """{name: config.json} of the presets; none without the file."""
    if not path.exists():
        return {}
    return {name: model["config"] for name, model in yaml.safe_load(path.read_text())["models"].items()}


def value_of(config, names, absent=None):
    return next((config[name] for name in names if config.get(name) is not None), absent)


def with_dimensions(config, dimensions):
    """The config with these dimensions, by the names of its family."""
    changed = dict(config)
    for key, value in dimensions.items():
        changed[next((name for name in NAMES[key] if name in config), NAMES[key][0])] = value
    return changed


def of_dimensions(dimensions):
    """A model that is not a preset: of GPT-3's layers, or of llama's if its MLP or heads are not those of GPT-3."""
    hidden, heads = dimensions["hidden"], dimensions["heads"]
    is_gpt = dimensions.get("ffn", 4 * hidden) == 4 * hidden and dimensions.get("kv_heads", heads) == heads
    if not is_gpt:
        return with_dimensions({"model_type": "llama"}, {"ffn": 4 * hidden, **dimensions})
    return {"model_type": "gpt2", "n_embd": hidden, "n_layer": dimensions["layers"], "n_head": heads,
            "vocab_size": dimensions["vocab"]}


def with_positions(config, sequence):
    """Learned positions must reach to the end of the sequence."""
    return {**config, "n_positions": max(sequence, config.get("n_positions", 0))} if config["model_type"] == "gpt2" else config


def layer_weights(config):
    """Weights of the products of a layer that a token takes part in: (attention, dense MLP, MLP of experts)."""
    hidden, heads = value_of(config, NAMES["hidden"]), value_of(config, NAMES["heads"])
    width = config.get("head_dim") or hidden // heads
    if "kv_lora_rank" in config:
        plain, rotary, value = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        rank, compressed = config.get("q_lora_rank"), config["kv_lora_rank"]
        query = (hidden + heads * (plain + rotary)) * rank if rank else hidden * heads * (plain + rotary)
        attention = query + hidden * (compressed + rotary) + compressed * heads * (plain + value) + heads * value * hidden
    else:
        attention = 2 * hidden * width * (heads + value_of(config, NAMES["kv_heads"], heads))
    matrices = 2 if config["model_type"].startswith(PLAIN) else 3
    ffn = value_of(config, NAMES["ffn"]) or hidden * config.get("expansion_ratio", 4)
    width = config.get("moe_intermediate_size", ffn)
    shared = config.get("moe_shared_expert_intermediate_size") or width * config.get("n_shared_experts", 0)
    latent = config.get("moe_latent_size") or 0  # routed experts read and write this width, after a product and before another
    routed = matrices * (latent or hidden) * width * config.get("num_experts_per_tok", 0) + 2 * hidden * latent
    experts = routed + matrices * hidden * shared + hidden * value_of(config, EXPERTS, 0)
    return attention, matrices * hidden * ffn, experts


def mamba_layer(config):
    """Weights of the products of a layer of Mamba-2, and FLOPs of its scan forward: products of a chunk as in causal attention,
    and into the states and out of them."""
    heads, width, groups, state = (config[name] for name in ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size"))
    inner, shared = heads * width, groups * state
    weights = config["hidden_size"] * (3 * inner + 2 * shared + heads) + (inner + 2 * shared) * config["conv_kernel"]
    return weights, config["chunk_size"] * (shared + inner) + 4 * inner * state


def layers_of(config):
    """How many layers have attention, Mamba-2, a dense MLP and experts."""
    layers = value_of(config, NAMES["layers"])
    pattern = config.get("hybrid_override_pattern")
    if pattern:
        return tuple(pattern.count(letter) for letter in "*M-E")
    dense = config.get("first_k_dense_replace", 0) if value_of(config, EXPERTS) else layers
    if value_of(config, EXPERTS) and "decoder_sparse_step" in config:
        dense = layers - layers // config["decoder_sparse_step"]
    return layers, 0, dense, layers - dense


def flops_per_token(config, sequence, further=0):
    """FLOPs of the model in training: 6 per weight of the products, the head's among them, and per token before in
    attention. Recomputation does not count, nor does attention to later tokens. Each module of a further token is a layer with
    experts, a product from twice the hidden size, and a head more."""
    hidden, heads = (value_of(config, NAMES[key]) for key in ("hidden", "heads"))
    attention, dense, experts = layer_weights(config)
    with_attention, with_mamba, with_dense, with_experts = layers_of(config)
    weights = with_attention * attention + with_dense * dense + with_experts * experts + hidden * config["vocab_size"]
    weights += further * (attention + experts + 2 * hidden * hidden + hidden * config["vocab_size"])
    scans = 0
    if with_mamba:
        of_layer, scan = mamba_layer(config)
        weights, scans = weights + with_mamba * of_layer, with_mamba * scan
    widths = 2 * (config.get("head_dim") or hidden // heads)  # of a key and a value
    if "kv_lora_rank" in config:
        widths = config["qk_nope_head_dim"] + config["qk_rope_head_dim"] + config["v_head_dim"]
    window = min(config.get("sliding_window") or sequence, sequence)
    share = WINDOWED.get(config["model_type"], 1)
    seen = share * window * (1 - window / (2 * sequence)) + (1 - share) * sequence / 2
    return 6 * (weights + (with_attention + further) * heads * widths * seen) + 3 * scans

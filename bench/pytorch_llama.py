#!/usr/bin/env python3
"""Trains a llama in pipewright and in PyTorch, and compares losses and weights.

    bench/pytorch_llama.py PIPEWRIGHT [--steps 10] [--plain] [--set KEY=VALUE]...

A llama of four blocks, in which two heads share the keys and values of one, is trained on two devices, by schedules with
full and with split backwards, and by both optimizers. Hugging Face's LlamaForCausalLM (or, without the package transformers
or with --plain, the module below with the same names) loads the same initial weights by name and is trained on the same
tokens by PyTorch's optimizer, in float32. The weights are those that pipewright saves, made larger, so that attention is far
from a mean. Losses of all steps and the weights after the last one must be ours to 1e-5 of their largest value.
`--set run.backend=cuda` runs on GPUs.

Prints one table. Exit status 77 without PyTorch, 1 when anything differs.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pytorch_tensors import arrays_in, difference, numpy, tensors_in, torch
from torch.nn import functional

try:
    import transformers
except ImportError:
    transformers = None

TOLERANCE = 1e-5
LENGTH, VOCABULARY, WIDTH, BLOCKS, HEADS, KEY_VALUE_HEADS, INNER, BASE = 24, 40, 48, 4, 6, 3, 72, 500.0
MICRO_BATCHES, SAMPLES = 4, 2  # SAMPLES: of a micro-batch
CONFIG = f"""\
workload: {{model: llama, sequence_length: {LENGTH}, vocabulary: {VOCABULARY}, embedding: {WIDTH}, blocks: {BLOCKS}, heads: {HEADS},
           key_value_heads: {KEY_VALUE_HEADS}, inner: {INNER}, rotary_base: {BASE}}}
cluster: {{devices: 2}}
pipeline: {{micro_batches: {MICRO_BATCHES}, micro_batch_size: {SAMPLES}}}
training: {{weight_decay: 0.1, initial: initial}}
"""
SCHEDULES = ["1f1b", "zb-v"]
# AdamW divides by the size of gradients: a smaller epsilon would magnify the rounding of those near zero.
OPTIMIZERS = {  # settings, and PyTorch's optimizer
    "sgd": (["training.learning_rate=0.03", "training.momentum=0.8"],
            lambda all: torch.optim.SGD(all, lr=0.03, momentum=0.8, weight_decay=0.1)),
    "adamw": (["training.learning_rate=0.003", "training.betas=[0.8, 0.95]", "training.epsilon=1e-4"],
              lambda all: torch.optim.AdamW(all, lr=0.003, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
}


class RmsNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


def turned(x):
    """Rotary positions of heads {samples, heads, length, width of a head}."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(LENGTH), BASE ** (-torch.arange(half) / half))
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        keys = WIDTH // HEADS * KEY_VALUE_HEADS
        self.q_proj, self.k_proj, self.v_proj = linear(WIDTH, WIDTH), linear(WIDTH, keys), linear(WIDTH, keys)
        self.o_proj = linear(WIDTH, WIDTH)

    def forward(self, x):
        queries, keys, values = (made.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                                 for made in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        keys, values = (shared.repeat_interleave(HEADS // KEY_VALUE_HEADS, 1) for shared in (turned(keys), values))
        seen = functional.scaled_dot_product_attention(turned(queries), keys, values, is_causal=True)
        return self.o_proj(seen.transpose(1, 2).flatten(-2))


class GatedLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(WIDTH, INNER), linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(), RmsNorm()
        self.self_attn, self.mlp = Attention(), GatedLinear()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.model.layers = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.model.norm, self.lm_head = RmsNorm(), linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x)
        return self.lm_head(self.model.norm(x))


def hugging_face():
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_VALUE_HEADS, max_position_embeddings=LENGTH, hidden_act="silu",
        rms_norm_eps=1e-5, rope_theta=BASE, attention_bias=False, mlp_bias=False, tie_word_embeddings=False,
        attn_implementation="eager", use_cache=False)
    theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]  # by version
    assert theta == BASE
    model = transformers.LlamaForCausalLM(config)
    return model, lambda tokens: model(tokens).logits


def pipewright(*words):
    done = subprocess.run([arguments.pipewright, "run", "config.yaml", *words, "--json"], cwd=folder, text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"run {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def sets(*settings):
    return [word for setting in (*settings, *arguments.set) for word in ("--set", setting)]


def tokens_of_all_steps():
    """What the steps read, {steps, samples, length}: tokens and labels, as one mini-batch of a single step."""
    pipewright("--steps", "1", "--dump", "batch",
               *sets("pipeline.schedule=gpipe", f"pipeline.micro_batches={arguments.steps * MICRO_BATCHES}", "training.initial="))
    arrays = arrays_in(folder / "batch")
    return [arrays[name].reshape(arguments.steps, -1, LENGTH).long() for name in ("images", "labels")]


def initial_weights():
    """Weights by name, also as files of the folder `initial`: the saved ones times eight, and uneven ones of the norms."""
    torch.manual_seed(1)
    weights = {name: values * 8 if values.dim() > 1 else values + torch.rand(values.shape) - 0.5
               for name, values in arrays_in(folder / "batch" / "initial").items()}
    (folder / "initial").mkdir()
    for name, values in weights.items():
        numpy.save(folder / "initial" / f"{name}.npy", values.numpy())
    return weights


def trained_there(make):
    """PyTorch's losses, and its weights at the end."""
    if arguments.plain or transformers is None:
        model = logits_of = Plain()
    else:
        model, logits_of = hugging_face()
    model.load_state_dict(initial)
    model.train()
    optimizer = make(model.parameters())
    losses = []
    for tokens, labels in zip(*batches):
        loss = functional.cross_entropy(logits_of(tokens).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def compare(optimizer):
    settings, make = OPTIMIZERS[optimizer]
    theirs, all_good = None, True
    for schedule in SCHEDULES:
        name = f"{optimizer}-{schedule}"
        ours = pipewright("--steps", str(arguments.steps), "--checkpoint", f"kept-{name}",
                          *sets(f"training.optimizer={optimizer}", f"pipeline.schedule={schedule}", *settings))["losses"]
        if theirs is None:
            theirs = trained_there(make)
        weights = tensors_in(folder / f"kept-{name}" / f"step-{arguments.steps:08d}" / "model.safetensors")
        of_losses = max(abs(own - their) / their for own, their in zip(ours, theirs[0], strict=True))
        of_weights = difference(weights, theirs[1])
        good = max(of_losses, of_weights) <= TOLERANCE
        print(f"{optimizer:10}{schedule:10}{ours[0]:>12.4f}{ours[-1]:>12.4f}{of_losses:>12.1e}{of_weights:>12.1e}  "
              f"{'ok' if good else 'DIFFERS'}")
        all_good = all_good and good
    return all_good


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("pipewright")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--plain", action="store_true")
parser.add_argument("--set", action="append", default=[])
arguments = parser.parse_args()
arguments.pipewright = str(Path(arguments.pipewright).resolve())
with tempfile.TemporaryDirectory() as name_of_folder:
    folder = Path(name_of_folder)
    (folder / "config.yaml").write_text(CONFIG)
    module = "a plain module" if arguments.plain or transformers is None else f"transformers {transformers.__version__}"
    print(f"{arguments.steps} steps, PyTorch {torch.__version__}, {module}; largest differences, relative to the loss and to "
          "the largest weight\n")
    print(f"{'optimizer':10}{'schedule':10}{'first loss':>12}{'last loss':>12}{'losses':>12}{'weights':>12}")
    batches, initial = tokens_of_all_steps(), initial_weights()
    results = [compare(optimizer) for optimizer in OPTIMIZERS]
sys.exit(0 if all(results) else 1)

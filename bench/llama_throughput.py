#!/usr/bin/env python3
"""Training steps of a llama on one GPU: `pipewright run` and Hugging Face's LlamaForCausalLM, in turns.

    bench/llama_throughput.py PIPEWRIGHT [--rounds 2] [--modes eager,compile] [--blocks 8] [--length 1024] [--samples 8] [--steps 12]

Both train the same model from random weights with AdamW: products in bf16, weights, gradients and states in fp32. PyTorch runs
with autocast, its fused optimizer and scaled_dot_product_attention, eager or compiled. Both count from the start of a step to
the start of the next. Prints medians over the rounds, in tokens per second, and ratios to eager PyTorch. Exit status 77 without
PyTorch, transformers or a GPU.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from resnet50_pytorch import milliseconds_per_step
from resnet50_table import times_between_starts

WARM_UP = 4
MODEL = dict(hidden_size=2048, num_attention_heads=16, num_key_value_heads=4, intermediate_size=5632, vocab_size=32000)


def skip(why):
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(77)


def ours(arguments, folder):
    config = f"""\
workload: {{model: llama, sequence_length: {arguments.length}, vocabulary: {MODEL["vocab_size"]}, embedding: {MODEL["hidden_size"]},
           blocks: {arguments.blocks}, heads: {MODEL["num_attention_heads"]}, key_value_heads: {MODEL["num_key_value_heads"]},
           inner: {MODEL["intermediate_size"]}}}
cluster: {{devices: 1}}
pipeline: {{schedule: gpipe, micro_batches: 1, micro_batch_size: {arguments.samples}}}
training: {{steps: {WARM_UP + arguments.steps}, optimizer: adamw, learning_rate: 0.0001, precision: bf16}}
run: {{backend: cuda, deterministic: false, timeout: 120 s}}
"""
    (folder / "config.yaml").write_text(config)
    trace = folder / "trace.json"
    done = subprocess.run([arguments.pipewright, "run", folder / "config.yaml", "--json", "--trace", trace], text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"run: {done.stderr}")
    return statistics.median(times_between_starts(trace)[WARM_UP - 1:]) / 1e9


def theirs(arguments, mode):
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **MODEL, num_hidden_layers=arguments.blocks, max_position_embeddings=arguments.length, attn_implementation="sdpa",
        tie_word_embeddings=False, use_cache=False)).cuda().train()
    forward = torch.compile(model) if mode == "compile" else model
    tokens = torch.randint(MODEL["vocab_size"], (arguments.samples, arguments.length), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    return statistics.median(milliseconds_per_step(torch, step, arguments.steps)) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipewright")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--modes", default="eager,compile")
    for name, value in (("blocks", 8), ("length", 1024), ("samples", 8), ("steps", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", help=argparse.SUPPRESS)  # PyTorch in this mode, in a process of its own
    arguments = parser.parse_args()
    arguments.pipewright = str(Path(arguments.pipewright).resolve())
    if arguments.only:
        print(theirs(arguments, arguments.only))
        return
    try:
        import torch
        import transformers
    except ImportError as error:
        skip(error)
    if not torch.cuda.is_available():
        skip("PyTorch finds no GPU")
    names = ["pipewright", *(f"PyTorch, {mode}" for mode in arguments.modes.split(","))]
    rates = {name: [] for name in names}
    per_step = arguments.samples * arguments.length
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            rates["pipewright"].append(per_step / ours(arguments, Path(folder)))
            for mode in arguments.modes.split(","):
                done = subprocess.run([sys.executable, *sys.argv, "--only", mode], text=True, capture_output=True)
                if done.returncode != 0:
                    sys.exit(f"PyTorch, {mode}: {done.stderr[-2000:]}")
                rates[f"PyTorch, {mode}"].append(per_step / float(done.stdout.split()[-1]))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, transformers {transformers.__version__}; "
          f"{arguments.blocks} blocks, {arguments.samples} sequences of {arguments.length} tokens")
    print(f"{'':18}{'tokens/s':>10}{'ratio':>8}  rounds")
    reference = statistics.median(rates[names[1]])
    for name, all_rates in rates.items():
        median = statistics.median(all_rates)
        print(f"{name:18}{median:10.0f}{median / reference:8.2f}  {' '.join(f'{rate:.0f}' for rate in all_rates)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the updates of a training with those of PyTorch's optimizers.

    bench/pytorch_optimizers.py PIPEWRIGHT [--steps 20] [--set KEY=VALUE]...

A small model is trained in one run, and in runs of one step that resume from each other's checkpoints and dump their
gradients: both must end with the same weights, bit for bit. PyTorch's optimizer then gets the same initial weights and
the same gradients, in float32. Its weights after every step, and its states after the last one, must be ours to 1e-6 of
their largest value. `--set run.backend=cuda` runs on a GPU.

Prints one table. Exit status 77 without PyTorch, 1 when anything differs.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pytorch_tensors import arrays_in, difference, tensors_in, torch

TOLERANCE = 1e-6
CONFIG = """\
workload: {model: gpt, sequence_length: 8, vocabulary: 16, embedding: 16, heads: 2, blocks: 2}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {learning_rate: 0.01, weight_decay: 0.1}
"""
OPTIMIZERS = {  # settings, PyTorch's optimizer, and its name for each state by what follows a parameter's name in ours
    "sgd": (["training.momentum=0.8"], lambda all: torch.optim.SGD(all, lr=0.01, momentum=0.8, weight_decay=0.1),
            {"": "momentum_buffer"}),
    "adamw": (["training.betas=[0.8, 0.95]", "training.epsilon=1e-7"],
              lambda all: torch.optim.AdamW(all, lr=0.01, betas=(0.8, 0.95), eps=1e-7, weight_decay=0.1),
              {".exp_avg": "exp_avg", ".exp_avg_sq": "exp_avg_sq"}),
}


def run(*words):
    done = subprocess.run([arguments.pipewright, "run", "config.yaml", *words, "--json"], cwd=folder, text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"run {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)["weights_hash"]


def compare(name, backend):
    settings, make, states = OPTIMIZERS[name]
    sets = [f"training.optimizer={name}", f"run.backend={backend}", *settings, *arguments.set]
    own = [word for setting in sets for word in ("--set", setting)]
    kept = f"kept-{name}-{backend}"
    whole = run(*own, "--steps", str(arguments.steps))
    parameters, optimizer, largest, ended = None, None, 0.0, None
    for step in range(1, arguments.steps + 1):
        dump = f"dump-{name}-{backend}-{step}"
        ended = run(*own, "--steps", str(step), "--checkpoint", kept, "--dump", dump,
                    *(["--resume", kept] if step > 1 else []))
        if parameters is None:
            parameters = {key: torch.nn.Parameter(values) for key, values in arrays_in(folder / dump / "initial").items()}
            optimizer = make(parameters.values())
        for key, gradient in arrays_in(folder / dump / "gradients").items():
            parameters[key].grad = gradient
        optimizer.step()
        theirs = {key: parameter.detach() for key, parameter in parameters.items()}
        largest = max(largest, difference(arrays_in(folder / dump / "updated"), theirs))
    theirs = {key + suffix: optimizer.state[parameter][state] for suffix, state in states.items()
              for key, parameter in parameters.items()}
    ours = tensors_in(folder / kept / f"step-{arguments.steps:08d}" / "optimizer.safetensors")
    by_state = [difference(*({key: values for key, values in all.items() if key.endswith(suffix)}
                             for all in (ours, theirs))) for suffix in states]
    alike = whole == ended and max(largest, *by_state) <= TOLERANCE
    print(f"{name:10}{backend:12}{largest:>14.1e}{max(by_state):>14.1e}  {'same' if whole == ended else 'OTHER':10}"
          f"{'ok' if alike else 'DIFFERS'}")
    return alike


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("pipewright")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--set", action="append", default=[])
arguments = parser.parse_args()
arguments.pipewright = str(Path(arguments.pipewright).resolve())
with tempfile.TemporaryDirectory() as name_of_folder:
    folder = Path(name_of_folder)
    (folder / "config.yaml").write_text(CONFIG)
    print(f"{arguments.steps} steps, PyTorch {torch.__version__}; largest difference, relative to the largest value\n")
    print(f"{'optimizer':10}{'backend':12}{'weights':>14}{'states':>14}  {'resumed':10}")
    backends = [setting.split("=")[1] for setting in arguments.set if setting.startswith("run.backend=")]
    results = [compare(name, backend) for name in OPTIMIZERS for backend in backends or ["reference", "cpu"]]
sys.exit(0 if all(results) else 1)

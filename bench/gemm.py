#!/usr/bin/env python3
"""Compares the products that `pipewright profile --gemm` measures with PyTorch's torch.mm.

    bench/gemm.py PIPEWRIGHT CONFIG [--rounds 8] [--seconds 4] [--threads 1] [--gpu] [--set KEY=VALUE]...

The products are those of the config's transformer. In every round pipewright measures them within --seconds, and PyTorch right
after it, with operands in the same layouts, so that changes of the machine's speed affect both. On the cores: in fp32, PyTorch by
a warm-up and the median of 9 calls on as many threads, pinned to the first cores. With --gpu: in bf16, PyTorch as in
gpu_shapes.py; gradients of weights are made in fp32 by both. Prints the medians of the rounds for each product, and the median of
the ratios of times, ours / PyTorch's. Exit status 77 without PyTorch, PyYAML or, with --gpu, a GPU.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
    import yaml

    from gpu_shapes import Bench
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)

CALLS = 9
RATES = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}


def rate_on_cores(m, k, n, layout):
    left = torch.rand(k, m).t() if layout == "NT" else torch.rand(m, k)
    right = torch.rand(n, k).t() if layout == "TN" else torch.rand(k, n)
    out, times = torch.empty(m, n), []
    for _ in range(CALLS + 1):
        begin = time.perf_counter()
        torch.mm(left, right, out=out)
        times.append(time.perf_counter() - begin)
    return 2 * m * k * n / statistics.median(times[1:])


def rate_on(gpu):
    """A function like rate_on_cores."""
    def rate(m, k, n, layout):
        left = (lambda: gpu.matrix(k, m).t()) if layout == "NT" else (lambda: gpu.matrix(m, k))
        right = (lambda: gpu.matrix(n, k).t()) if layout == "TN" else (lambda: gpu.matrix(k, n))
        if layout == "NT":
            return 2 * m * k * n / gpu.seconds(lambda: torch.mm(left(), right(), out_dtype=torch.float32))
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        return 2 * m * k * n / gpu.seconds(lambda: torch.mm(left(), right(), out=out))
    return rate


def measured_table(arguments, path):
    place = ["run.backend=cuda", "training.precision=bf16"] if arguments.gpu else [f"run.threads_per_device={arguments.threads}"]
    settings = [word for one in [*place, *arguments.set] for word in ("--set", one)]
    command = [arguments.pipewright, "profile", arguments.config, "--gemm", "-o", path, "--seconds", arguments.seconds]
    done = subprocess.run([*command, *settings], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{arguments.pipewright} profile --gemm: {done.stderr}")
    return yaml.safe_load(path.read_text())["tables"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipewright")
    parser.add_argument("config")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", default="4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.gpu and not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU", file=sys.stderr)
        sys.exit(77)
    rate_of = rate_on(Bench(torch, "cuda")) if arguments.gpu else rate_on_cores
    torch.set_num_threads(arguments.threads)
    cores, rates = sorted(os.sched_getaffinity(0)), {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            os.sched_setaffinity(0, cores)
            table = measured_table(arguments, Path(folder) / "products.yaml")
            if not arguments.gpu:
                os.sched_setaffinity(0, cores[:arguments.threads])
            peak, unit = table["peak"].split()
            for *product, share in table["rows"]:
                rates.setdefault(tuple(product), []).append((share * float(peak) * RATES[unit], rate_of(*product)))
    print(f"{'m':>7} {'k':>7} {'n':>7}    ours  PyTorch GFLOP/s  ratio of times")
    ratios = []
    for (m, k, n, layout), both in rates.items():
        ours, theirs = (statistics.median(side) for side in zip(*both))
        ratios.append(statistics.median(b / a for a, b in both))
        print(f"{m:7} {k:7} {n:7} {layout} {ours / 1e9:5.1f} {theirs / 1e9:8.1f} {ratios[-1]:16.3f}")
    print(f"median of {len(ratios)} ratios: {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the products that `pipewright profile --gemm` measures on this machine's cores with PyTorch's torch.mm.

    bench/gemm.py PIPEWRIGHT CONFIG [--seconds 30] [--threads 1] [--set KEY=VALUE]...

The products are those of the config's transformer. Right after each other, both measure them in fp32 on the same number of
threads: a warm-up and the median of 9 calls in PyTorch, with operands in the same layouts. Prints a row for each product and the
median of the ratios of times, ours / PyTorch's. Exit status 77 without PyTorch or PyYAML.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
    import yaml
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)

CALLS = 9


def seconds_of(m, k, n, layout):
    left = torch.rand(k, m).t() if layout == "NT" else torch.rand(m, k)
    right = torch.rand(n, k).t() if layout == "TN" else torch.rand(k, n)
    out, times = torch.empty(m, n), []
    for _ in range(CALLS + 1):
        begin = time.perf_counter()
        torch.mm(left, right, out=out)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipewright")
    parser.add_argument("config")
    parser.add_argument("--seconds", default="30")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "products.yaml"
        settings = [word for one in [f"run.threads_per_device={arguments.threads}", *arguments.set] for word in ("--set", one)]
        subprocess.run([arguments.pipewright, "profile", arguments.config, "--gemm", "-o", path, "--seconds", arguments.seconds,
                        *settings], check=True, stdout=subprocess.DEVNULL)
        table = yaml.safe_load(path.read_text())["tables"][0]
    peak = float(table["peak"].split()[0]) * {"GFLOP/s": 1e9, "TFLOP/s": 1e12}[table["peak"].split()[1]]
    ratios = []
    print(f"{'m':>7} {'k':>7} {'n':>7}     ours  PyTorch GFLOP/s  ratio of times")
    for m, k, n, layout, efficiency in table["rows"]:
        ours, theirs = efficiency * peak, 2 * m * k * n / seconds_of(m, k, n, layout)
        ratios.append(theirs / ours)
        print(f"{m:7} {k:7} {n:7} {layout} {ours / 1e9:6.1f} {theirs / 1e9:8.1f} {ratios[-1]:16.3f}")
    print(f"median of {len(ratios)} ratios: {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()

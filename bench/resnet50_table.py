#!/usr/bin/env python3
"""Throughput of ResNet-50 in one table: medians over rounds, ratios to eager PyTorch, shares of the GPU's roofline.

    bench/resnet50_table.py OUT     what scripts/gpu-report --only throughput left there, in OUT/throughput

Both sides count from the start of a step to the start of the next, with all that lies between; in-step is what
`pipewright run` reports: from the first start to the last end of a step's tasks.
"""
import json
import re
import statistics
import sys
from pathlib import Path

BATCH = 256
PEER = "pytorch-eager"
BYTES_PER_IMAGE = 339e6  # forward and backward in bf16 when no layers are fused
MEMORY_RATES = {"H100 80GB HBM3": 3.35e12, "H200": 4.8e12}  # bytes per second, by the data sheets


def times_between_starts(trace):
    """Nanoseconds from the start of each step to that of the next."""
    starts = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X":
            step, start = event["args"]["step"], event["args"]["start_ns"]
            starts[step] = min(start, starts.get(step, start))
    ordered = [starts[step] for step in sorted(starts)]
    return [after - before for before, after in zip(ordered, ordered[1:])]


def start_to_start(trace):
    """Images per second, from the start of a step to that of the next."""
    return BATCH * 1e9 / statistics.median(times_between_starts(trace)[1:])  # the first step loads kernels


def rates_of(path):
    """{name: (images/s from start to start, images/s in a step or None)} of one process."""
    name = re.fullmatch(r"(.+)-\d+", path.stem).group(1)
    measured = json.loads(path.read_text())
    if "optimizers" in measured:
        return {name if kind == "foreach" else f"{name}, {kind} SGD": (run["images_per_second"], None)
                for kind, run in measured["optimizers"].items()}
    return {name: (start_to_start(path.with_suffix(".trace")), measured["samples_per_second"])}


def read(folder):
    runs = {}
    for path in sorted(folder.glob("*-[0-9].json")):
        try:
            for name, rates in rates_of(path).items():
                runs.setdefault(name, []).append(rates)
        except (AttributeError, KeyError, OSError, ValueError) as error:  # of a run that was cut off
            print(f"{path.name} is left out: {error!r}", file=sys.stderr)
    return runs


def rooflines(out):
    """[(what, images/s)] of the GPU: by its name, and by gpu_layers' measurements on it."""
    gpu = (out / "gpu.txt").read_text().strip() if (out / "gpu.txt").exists() else ""
    limits = [(f"memory at {rate / 1e12:g} TB/s (data sheet of {name})", rate / BYTES_PER_IMAGE)
              for name, rate in MEMORY_RATES.items() if gpu.endswith(name)]
    for path in sorted((out / "tools").glob("gpu_layers*.txt")):
        text = path.read_text(errors="replace")
        copies = re.search(r"bytes at (\d+) GB/s \(a copy of 1 GiB\)", text)
        floor = re.search(r"the floor allows (\d+)", text)
        if copies:
            rate = float(copies.group(1)) * 1e9
            limits.append((f"memory at {rate / 1e12:.2f} TB/s (a copy, measured)", rate / BYTES_PER_IMAGE))
        if floor:
            limits.append(("every layer at that rate or the products' (gpu_layers)", float(floor.group(1))))
    return limits


def median_of(values):
    known = [value for value in values if value]
    return statistics.median(known) if known else None


def table_of(out):
    """(header, rows) of the runs, (header, rows) of the rooflines."""
    runs = read(out / "throughput")
    medians = {name: median_of(between for between, _ in rates) for name, rates in runs.items()}
    rows = []
    for name, rates in sorted(runs.items()):
        steps = [between for between, _ in rates]
        inside = median_of(inside for _, inside in rates)
        rows.append([name, f"{medians[name]:.0f}", f"{min(steps):.0f} - {max(steps):.0f}",
                     f"{inside:.0f}" if inside else "-",
                     f"{medians[name] / medians[PEER]:.3f}" if PEER in medians else "-", str(len(rates))])
    shares = [[what, f"{limit:.0f}",
               ", ".join(f"{name} {100 * rate / limit:.1f} %" for name, rate in sorted(medians.items()))]
              for what, limit in rooflines(out)]
    return ((["", "images/s", "range", "in-step", "to eager", "runs"], rows),
            (["roofline", "images/s", "shares"], shares))


def main():
    for header, rows in table_of(Path(sys.argv[1])):
        widths = [max(map(len, column)) for column in zip(header, *rows)]
        for row in (header, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        print()


if __name__ == "__main__":
    main()

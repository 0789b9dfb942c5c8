#!/usr/bin/env python3
"""The table of bench/resnet50_gpu from its folder: medians over the rounds, ratios to eager PyTorch and
shares of what the H200's memory and arithmetic allow."""
import json
import re
import statistics
import sys
from pathlib import Path

PEER = "pytorch-eager"
# Images per second that an H200 can reach at most: the time of every layer's pass is the larger of bytes by
# bandwidth and FLOPs by rate; 339 MB and 24.3 GFLOP per image when no layers are fused.
ROOFLINES = {"memory at 4.8 TB/s alone": 14200, "layers at 4.3 TB/s and 790 TFLOP/s": 11000}


def start_to_start(trace):
    """Images per second from the start of a step to the start of the next, with what lies between."""
    starts = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X":
            step, start = event["args"]["step"], event["args"]["start_ns"]
            starts[step] = min(start, starts.get(step, start))
    ordered = [starts[step] for step in sorted(starts)]
    gaps = [after - before for before, after in zip(ordered[1:], ordered[2:])]
    return 256e9 / statistics.median(gaps) if gaps else None


def rates_of(path):
    """(images/s of the median step, images/s from start to start)."""
    measured = json.loads(path.read_text())
    if "images_per_second" in measured:
        return (measured["images_per_second"],) * 2
    trace = path.with_suffix(".trace")
    return measured["samples_per_second"], start_to_start(trace) if trace.exists() else None


def read(folder):
    runs = {}
    for path in sorted(folder.glob("*.json")):
        name = re.fullmatch(r"(.+)-\d+", path.stem)
        try:
            runs.setdefault(name.group(1), []).append(rates_of(path))
        except (AttributeError, KeyError, ValueError) as error:
            print(f"{path.name} is left out: {error!r}", file=sys.stderr)
    return runs


def median_of(values):
    known = [value for value in values if value]
    return statistics.median(known) if known else None


def main():
    runs = read(Path(sys.argv[1]))
    peer = median_of(first for first, _ in runs.get(PEER, []))
    print(f"{'':26} {'images/s':>9} {'range':>15} {'start to start':>15} {'to eager':>9} runs")
    for name, rates in sorted(runs.items()):
        steps = [first for first, _ in rates]
        median, between = median_of(steps), median_of(second for _, second in rates)
        ratio = f"{median / peer:.3f}" if peer else "-"
        span = f"{min(steps):.0f} - {max(steps):.0f}"
        print(f"{name:26} {median:9.0f} {span:>15} {between or 0:15.0f} {ratio:>9} {len(rates)}")
    print("\nshare of an H200's roofline")
    for what, limit in ROOFLINES.items():
        shares = ", ".join(f"{name} {100 * median_of(f for f, _ in rates) / limit:.1f} %"
                           for name, rates in sorted(runs.items()))
        print(f"{what}, {limit} images/s: {shares or '-'}")


if __name__ == "__main__":
    main()

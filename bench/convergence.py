#!/usr/bin/env python3
"""Trains one model under every weight policy: what late updates, and predicted weights, do to the loss.

    bench/convergence.py PIPEWRIGHT OUT [UPDATES]

Four stages on four CPU devices, the same initial weights, the same samples in the same order, the same number of
samples for each update: 4 micro-batches where a schedule sums over micro-batches, else one of that many samples.
Runs each at several learning rates, each with several seeds. Writes OUT/losses.json (every loss, mean over the seeds),
table.txt, samples.svg (loss by samples seen) and time.svg (loss by predicted time: devices that compute as fast as the
analytic costs say).
"""
import json
import statistics
import subprocess
import sys
from pathlib import Path

from records import write_records

CONFIG = """\
workload: {model: mlp, image_size: 12, classes: 10, hidden: [96, 96, 96]}
cluster: {devices: 4, memory_bandwidth: 15 GB/s, link: {latency: 1 us, bandwidth: 10 GB/s}}
pipeline: {stages: 4, split: [fc2, fc3, fc4]}
training: {momentum: 0.9}
"""
SAMPLES = 32  # of an update
PARTS = 4     # micro-batches of an update, where there are several
SEEDS = [1, 2, 3, 4, 5]
RATES = ["0.003", "0.006", "0.012"]
SHOWN = "0.006"
SUMMING = [f"pipeline.micro_batches={PARTS}", f"pipeline.micro_batch_size={SAMPLES // PARTS}"]
SINGLE = ["pipeline.schedule=pipedream", "pipeline.micro_batches=1", f"pipeline.micro_batch_size={SAMPLES}"]
POLICIES = {
    "flush (1f1b)": ["pipeline.schedule=1f1b", *SUMMING],
    "double_buffer (2bw)": ["pipeline.schedule=pipedream-2bw", *SUMMING],
    "stash": [*SINGLE, "pipeline.weights=stash"],
    "vertical_sync": [*SINGLE, "pipeline.weights=vertical_sync"],
    "latest": [*SINGLE, "pipeline.weights=latest"],
    "latest + spectrain": [*SINGLE, "pipeline.weights=latest", "pipeline.prediction=spectrain"],
    "latest + pipeoptim": [*SINGLE, "pipeline.weights=latest", "pipeline.prediction=pipeoptim"],
}
COLOURS = ["#1f2328", "#8250df", "#0969da", "#54aeff", "#cf222e", "#1a7f37", "#bf8700"]


def pipewright(command, *settings):
    sets = [word for setting in settings for word in ("--set", setting)]
    out = subprocess.run([binary, command, str(config), *sets, "--json"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def train(policy, rate, seed):
    settings = [*POLICIES[policy], f"training.steps={updates}", f"training.learning_rate={rate}",
                f"training.seed={seed}"]
    losses = pipewright("run", *settings)["losses"]
    assert len(losses) == updates, (policy, len(losses))
    return losses


def end_of(losses):
    return statistics.mean(losses[-(len(losses) // 10):])


def train_all(policy, rate):
    """The mean curve, and where each seed ends."""
    runs = [train(policy, rate, seed) for seed in SEEDS]
    return {"losses": [round(statistics.mean(losses), 5) for losses in zip(*runs)],
            "ends": [round(end_of(losses), 5) for losses in runs]}


def smooth(losses, width=10):
    return [statistics.mean(losses[max(0, k - width + 1):k + 1]) for k in range(len(losses))]


def table_of(results):
    text = (f"Mean loss of the last tenth of {updates} updates of {SAMPLES} samples, by learning rate, mean of "
            f"{len(SEEDS)} seeds (best - worst);\npredicted time of an update\n\n{'policy':22}")
    text += "".join(f"{rate:>22}" for rate in RATES) + f"{'update':>12}\n"
    for policy in POLICIES:
        result = results[policy]
        text += f"{policy:22}"
        for ends in (result["rates"][rate]["ends"] for rate in RATES):
            text += f"{statistics.mean(ends):>8.3f} ({min(ends):.3f} - {max(ends):.3f})"
        text += f"{result['update_ns'] / 1e3:>9.1f} us\n"
    return text


def plot(results, name, label, place):
    lines, blocks = [], []
    for number, (policy, colour) in enumerate(zip(POLICIES, COLOURS)):
        rows = enumerate(smooth(results[policy]["rates"][SHOWN]["losses"]), 1)
        blocks.append("\n".join(f"{place(results[policy], k):.6g} {loss:.6g}" for k, loss in rows))
        lines.append(f"'-' using 1:2 with lines lw 2 lc rgb '{colour}' title '{policy}'")
    script = ("set terminal svg size 900,480 font 'sans-serif,12' background '#ffffff'\n"
              f"set output '{out / name}'\n"
              f"set xlabel '{label}'\nset ylabel 'loss, over 10 updates'\nset yrange [0:2.5]\n"
              "set grid lc rgb '#d8dee4'\n"
              f"set key outside right top noenhanced\nset tics nomirror\nset border 3\n"
              f"set title 'mlp, 4 stages, {SAMPLES} samples per update, learning rate {SHOWN}, "
              f"mean of {len(SEEDS)} seeds'\n"
              "plot " + ", ".join(lines) + "\n" + "\ne\n".join(blocks) + "\ne\n")
    subprocess.run(["gnuplot"], input=script, check=True, text=True)


binary = sys.argv[1]
out = Path(sys.argv[2]).absolute()
updates = int(sys.argv[3]) if len(sys.argv) > 3 else 600
out.mkdir(parents=True, exist_ok=True)
config = out / "config.yaml"
config.write_text(CONFIG)
results = {}
for policy, settings in POLICIES.items():
    predicted = pipewright("simulate", *settings, f"training.steps={min(updates, 100)}")
    results[policy] = {"update_ns": predicted["step_time_ns"],
                       "peak_bytes": max(device["peak_memory_bytes"] for device in predicted["devices"]),
                       "rates": {rate: train_all(policy, rate) for rate in RATES}}
    print(policy, *(results[policy]["rates"][rate]["ends"] for rate in RATES), file=sys.stderr)
record = {"updates": updates, "samples_per_update": SAMPLES, "seeds": SEEDS, "policies": results}
write_records(out / "losses.json", record)
(out / "table.txt").write_text(table_of(results))
plot(results, "samples.svg", "samples", lambda _, k: k * SAMPLES)
plot(results, "time.svg", "predicted time, ms", lambda result, k: k * result["update_ns"] / 1e6)
print(table_of(results), end="")

#!/usr/bin/env python3
"""Searches plans for ResNet-50 on two CPU devices and runs the best one against other splits.

    bench/search_cpu.py PIPEWRIGHT OUT [ROUNDS]

Measures a profile, searches without a memory limit, then with one that excludes the plan found first, and runs
that best plan, the same plan cut evenly (equal numbers of layers), the same plan cut by FLOPs, and the plan that was
excluded, one after the other, in rounds. Writes OUT/profile.yaml, free.yaml, best.yaml, table.txt, runs.json.
"""
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from records import write_records

CONFIG = """\
workload: {model: resnet50, image_size: 64, classes: 10}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, stages: 2, micro_batches: 8, micro_batch_size: 4}
training: {steps: 6}
"""
SEARCH = ["--set", "search.schedules=[gpipe, 1f1b, eager-1f1b, interleaved, zb-h1, zb-v]",
          "--set", "search.stages=[2, 4]", "--set", "search.micro_batch_sizes=[1, 2, 4, 8]"]
CAP = 0.9  # of the memory of the plan found without a limit


def pipewright(*arguments):
    return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout


def search(name, *more):
    found = json.loads(pipewright("search", str(config), *SEARCH, *more, "--json", "-o", str(out / name)))
    print(f"{name}: {found['best']['schedule']}, {found['objective'] * 1e3:.1f} ms predicted, gap {found['gap']:.1%}, "
          f"{found['candidates']} plans in {found['seconds']:.1f} s", file=sys.stderr)
    return found


def cuts_of(plan, *more):
    """First layers of the later stages under another way to split."""
    summary = pipewright("simulate", str(plan), *more).splitlines()[0]
    stages = re.search(r"stages from (.*?), ", summary).group(1)
    return "[" + ", ".join(stages.split(" | ")[1:]) + "]"


def describe(plan):
    best = plan["best"]
    return f"{best['schedule']}, {len(best['stages'])} stages, {best['micro_batches']} x {best['micro_batch_size']}"


def table_of(runs):
    rows, rounds = runs["rows"], len(runs["rows"]["search"]["measured_ns"])
    text = (f"without a limit: {runs['free']}, peak {runs['free_peak_bytes'] / 2**20:.1f} MiB\n"
            f"memory per device limited to {runs['cap_bytes'] / 2**20:.1f} MiB: {runs['best']}\n"
            f"{rounds} rounds, medians; spread: largest - smallest; ratio to `search` of the same round, median (range)\n\n"
            f"{'split':10}{'predicted':>12}{'measured':>12}{'spread':>9}{'ratio':>7}{'(range)':>16}{'peak memory':>13}"
            f"  later stages start at\n")
    for name, row in rows.items():
        median = statistics.median(row["measured_ns"])
        spread = (max(row["measured_ns"]) - min(row["measured_ns"])) / median
        ratios = [own / best for own, best in zip(row["measured_ns"], rows["search"]["measured_ns"])]
        text += (f"{name:10}{row['predicted_ns'] / 1e6:>9.1f} ms{median / 1e6:>9.1f} ms{spread:>9.1%}"
                 f"{statistics.median(ratios):>7.3f}{f'({min(ratios):.3f} - {max(ratios):.3f})':>16}"
                 f"{row['peak_bytes'] / 2**20:>9.1f} MiB  {row['cuts']}\n")
    return text


binary = sys.argv[1]
out = Path(sys.argv[2]).absolute()
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
out.mkdir(parents=True, exist_ok=True)
config = out / "config.yaml"
config.write_text(CONFIG)
pipewright("profile", str(config), "--sizes", "1,2,4,8", "-o", str(out / "profile.yaml"))
SEARCH += ["--set", "cluster.profile=profile.yaml"]

free = search("free.yaml")
cap = int(free["best"]["reserved_memory_bytes"] * CAP)
best = search("best.yaml", "--set", f"cluster.memory={cap} B")

# FLOPs alone: analytic costs of a machine whose memory is never the limit
flops = ["--set", "cluster.profile=\"\"", "--set", "cluster.memory_bandwidth=inf", "--set", "pipeline.split=auto"]
splits = {
    "search": ("best.yaml", []),
    "even": ("best.yaml", ["--set", "pipeline.split=even"]),
    "FLOPs": ("best.yaml", ["--set", "pipeline.split=" + cuts_of(out / "best.yaml", *flops)]),
    "no limit": ("free.yaml", []),
}
rows = {}
for name, (plan, more) in splits.items():
    predicted = json.loads(pipewright("simulate", str(out / plan), *more, "--json"))
    rows[name] = {"cuts": cuts_of(out / plan, *more), "predicted_ns": predicted["step_time_ns"],
                  "peak_bytes": max(d["peak_memory_bytes"] for d in predicted["devices"]), "measured_ns": []}
for _ in range(rounds):
    for name, (plan, more) in splits.items():
        lifted = ["--set", f"cluster.devices=[{{memory: inf}}, {{memory: inf}}]"]
        run = pipewright("run", str(out / plan), *more, *lifted, "--steps", "6", "--json").splitlines()
        rows[name]["measured_ns"].append(json.loads("\n".join(run))["step_time_ns"])

runs = {"cap_bytes": cap, "free_peak_bytes": free["best"]["reserved_memory_bytes"], "free": describe(free),
        "best": describe(best), "rows": rows}
write_records(out / "runs.json", runs)
(out / "table.txt").write_text(table_of(runs))
config.unlink()
print(table_of(runs), end="")

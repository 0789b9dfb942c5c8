#!/usr/bin/env python3
"""How far the steps of the schedule auto may be from the least under tight memory, and what they gain over the best other
schedule with the same placement that fits: random pipelines of 3 to 8 devices with uneven stages, 6 to 32 micro-batches, a
latency per link, and room for 1 to p micro-batches, p + 1 in both directions.

    bench/order_gaps.py PIPEWRIGHT [INSTANCES [PLACEMENT]]

PLACEMENT is line (the default), v for auto-v, or bidirectional for auto-bidirectional.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

PLACEMENTS = {  # the schedule, its stages per device, and the others
    "line": ("auto", 1, ("naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")),
    "v": ("auto-v", 2, ("zb-v", "v-half", "v-min", "hanayo", "dualpipe-v")),
    "bidirectional": ("auto-bidirectional", 1, ("chimera", "dualpipe")),
}


def instance(seed, placement="line"):
    """Returns devices, micro-batches, the limit of activations, and the config without a schedule."""
    dice = random.Random(seed)
    devices, batches = dice.randint(3, 8), dice.randint(6, 32)
    limit = dice.randint(1, devices)
    if placement == "bidirectional":
        devices, batches = devices + devices % 2, batches + batches % 2
        limit = dice.randint(1, devices + 1)  # dualpipe needs as many
    stages = devices * PLACEMENTS[placement][1]
    times = [[f"{dice.randint(500, 1500)} ns" for _ in range(stages)] for _ in range(3)]
    links = ", ".join(f"{{from: {at}, to: {to}, latency: {dice.randint(0, 300)} ns, bandwidth: inf}}"
                      for a in range(devices - 1) for at, to in ((a, a + 1), (a + 1, a)))
    text = (f"workload: {{model: uniform, forward: [{', '.join(times[0])}], backward_input: [{', '.join(times[1])}], "
            f"backward_weight: [{', '.join(times[2])}], activation: 1 MB, activation_until_weight: 1 MB}}\n"
            f"cluster: {{devices: {devices}, link: {{latency: 0 us, bandwidth: inf}}, links: [{links}]}}\n")
    return devices, batches, limit, text


def simulate(pipewright, text, pipeline):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "row.yaml")
        with open(path, "w") as file:
            file.write(text + f"pipeline: {{{pipeline}}}\n")
        return json.loads(subprocess.run([pipewright, "simulate", path, "--json"], check=True, capture_output=True,
                                         text=True).stdout)


def simulations(pipewright, text, schedules, batches):
    """Returns the reports of those schedules that are defined for this size."""
    for name in schedules:
        try:
            yield simulate(pipewright, text, f"schedule: {name}, micro_batches: {batches}")
        except subprocess.CalledProcessError as error:
            if error.returncode != 2:
                raise


def held(report):
    """Returns the most activations, each of a stage, that a device holds until W."""
    return max(device["peak_in_flight_until_weight"] for device in report["devices"])


def main():
    pipewright, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    placement = sys.argv[3] if len(sys.argv) > 3 else "line"
    schedule, chunks, others = PLACEMENTS[placement]
    gaps, gains, tight, longer, seconds = [], [], [], 0, 0.0
    for seed in range(count):
        devices, batches, limit, text = instance(seed, placement)
        start = time.monotonic()
        auto = simulate(pipewright, text, f"schedule: {schedule}, micro_batches: {batches}, activations: {limit}")
        seconds = max(seconds, time.monotonic() - start)
        assert held(auto) <= limit * chunks, (seed, held(auto), limit)
        gaps.append(auto["order"]["step_gap"])
        fitting = [report["step_time_ns"] for report in simulations(pipewright, text, others, batches)
                   if held(report) <= limit * chunks]
        if not fitting:
            continue
        gain = min(fitting) / auto["step_time_ns"] - 1
        longer += gain < 0
        gains.append(gain)
        if limit < devices:
            tight.append(gain)
    percent = lambda value: f"{100 * value:.1f} %"
    print(f"{count} pipelines: gap to the least possible step {percent(statistics.mean(gaps))} in the mean, "
          f"{percent(max(gaps))} at most, 0 in {sum(gap == 0 for gap in gaps)}")
    less = f"{percent(statistics.mean(tight))} with room for less than p ({len(tight)} pipelines); " if tight else ""
    print(f"faster than the best of {', '.join(others)} that fits, in {len(gains)} pipelines: "
          f"{percent(statistics.mean(gains))} in the mean, {less}slower in {longer}")
    print(f"the longest command took {seconds:.2f} s")


if __name__ == "__main__":
    main()

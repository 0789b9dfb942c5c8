#!/usr/bin/env python3
"""What the schedule auto gains where all stages are recomputed, at the same memory: over the best other schedule with the same
placement that fits, recomputed too, and over auto without recomputation. The pipelines are those of bench/order_gaps.py; a
micro-batch keeps 1 MB of activations on a stage, and sends 0.1 MB to the next one. A device has memory for 1 to p micro-batches
as they arrive, and for the activations of 1 to 3.

    bench/recomputed_orders.py PIPEWRIGHT [INSTANCES [PLACEMENT]]

PLACEMENT is line (the default) or v for auto-v.
"""
import random
import statistics
import subprocess
import sys
import time

from order_gaps import PLACEMENTS, instance, simulate


def needed(report):
    return max(device["reserved_memory_bytes"] or device["peak_memory_bytes"] for device in report["devices"])


def step(pipewright, text, schedule, batches, memory, recompute):
    """Returns the step time, or None if the plan does not fit or the schedule is not defined for this size."""
    try:
        report = simulate(pipewright, text, f"schedule: {schedule}, micro_batches: {batches}, recompute: {recompute}")
    except subprocess.CalledProcessError as error:
        if error.returncode != 2:
            raise
        return None
    return report["step_time_ns"] if needed(report) <= memory else None


def summary(gains):
    percent = lambda value: f"{100 * value:.1f} %"
    if not gains:
        return "no pipelines"
    return (f"{percent(statistics.mean(gains))} in the mean of {len(gains)} pipelines, {percent(max(gains))} at most, slower in "
            f"{sum(gain < 0 for gain in gains)}")


def main():
    pipewright, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    placement = sys.argv[3] if len(sys.argv) > 3 else "line"
    schedule, chunks, others = PLACEMENTS[placement]
    over_others, over_whole, seconds, fitting, missed = [], [], 0.0, 0, 0
    for seed in range(count):
        dice = random.Random(seed + 1000)
        devices, batches, _, text = instance(seed, placement)
        memory = chunks * (100_000 * dice.randint(1, devices) + 1_000_000 * dice.randint(1, 3))
        text = text.replace("activation: 1 MB, activation_until_weight: 1 MB",
                            "activation: 1 MB, activation_until_weight: 0.5 MB, output: 0.1 MB")
        text = text.replace(f"devices: {devices},", f"devices: {devices}, memory: {memory} B,")
        start = time.monotonic()
        found = step(pipewright, text, schedule, batches, memory, "all")
        seconds = max(seconds, time.monotonic() - start)
        named = [own for name in others if (own := step(pipewright, text, name, batches, memory, "all"))]
        if found is None:
            missed += 1 if named else 0
            continue
        fitting += 1
        if named:
            over_others.append(min(named) / found - 1)
        if whole := step(pipewright, text, schedule, batches, memory, "none"):
            over_whole.append(whole / found - 1)
    print(f"{schedule}, all stages recomputed, fits in {fitting} of {count} pipelines, another one in {missed} of the others; the "
          f"longest command took {seconds:.2f} s")
    print(f"faster than the best of {', '.join(others)}: {summary(over_others)}")
    print(f"faster than {schedule} without recomputation: {summary(over_whole)}")


if __name__ == "__main__":
    main()

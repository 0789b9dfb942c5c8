#!/usr/bin/env python3
"""What `auto` gains on two CPU devices: ResNet-50 at 32 pixels in two uneven stages, under limits of the activations that a
device holds, against every named schedule that keeps the limit.

    bench/orders_cpu.py PIPEWRIGHT FOLDER [ROUNDS]

It writes FOLDER/table.txt and FOLDER/rounds.json. A profile is measured first, by which `auto` orders the tasks. A round, of
eight, runs every schedule once for each split and limit, in an order of its own. A row has the median of the steps, and the
median of the ratios to `auto` in the same round, so that slow changes of the machine cancel.
"""
import json
import os
import random
import statistics
import sys
import tempfile

from accuracy_cpu import call
from records import write_records

NAMED = ("naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")
SPLITS = ("layer4.0",)  # the first layer of the second stage
LIMITS = (1, 3)
MICRO_BATCHES, MICRO_BATCH_SIZE, STEPS = 8, 4, 20


def config_of(schedule, split, limit, profile=None):
    cluster = {"devices": 2, **({"profile": profile} if profile else {})}
    pipeline = {"schedule": schedule, "split": [split], "micro_batches": MICRO_BATCHES, "micro_batch_size": MICRO_BATCH_SIZE}
    if schedule == "auto":
        pipeline["activations"] = limit
    return {"workload": {"model": "resnet50", "image_size": 32, "classes": 10}, "cluster": cluster, "pipeline": pipeline,
            "training": {"steps": STEPS, "learning_rate": 0.001}}


def held(report):
    """The most micro-batches whose activations a device holds until W."""
    return max(device["peak_in_flight_until_weight"] for device in report["devices"])


def main():
    program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    os.makedirs(out, exist_ok=True)
    dice = random.Random(1)
    rounds, predicted = [], {}
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.yaml")
        call(program, "profile", config_of("1f1b", SPLITS[0], 1), folder, "-o", profile, "--sizes", str(MICRO_BATCH_SIZE))
        for split in SPLITS:
            for limit in LIMITS:
                for schedule in (*NAMED, "auto"):
                    report = json.loads(call(program, "simulate", config_of(schedule, split, limit, profile), folder, "--json"))
                    if held(report) <= limit:
                        predicted[split, limit, schedule] = report
        for number in range(count):
            for split, limit, schedule in dice.sample(list(predicted), len(predicted)):
                report = json.loads(call(program, "run", config_of(schedule, split, limit, profile), folder, "--json"))
                rounds.append({"round": number, "split": split, "limit": limit, "schedule": schedule,
                               "measured_step_ns": report["step_time_ns"]})
                print(f"{number} {split} {limit} {schedule}: {report['step_time_ns'] / 1e6:.1f} ms", file=sys.stderr, flush=True)
    write_records(os.path.join(out, "rounds.json"), rounds)
    steps = {(row["round"], row["split"], row["limit"], row["schedule"]): row["measured_step_ns"] for row in rounds}
    lines = []
    for split in SPLITS:
        lines.append(f"second stage from {split}, medians of {count} rounds; micro-batches held until W")
        lines.append(f"{'limit':>5}  {'schedule':<12}{'held':>5}{'predicted':>12}{'measured':>12}{'predicted / auto':>18}{'measured / auto':>17}")
        for limit in LIMITS:
            own = predicted[split, limit, "auto"]["step_time_ns"]
            for schedule in (*NAMED, "auto"):
                if (split, limit, schedule) not in predicted:
                    continue
                report = predicted[split, limit, schedule]
                measured = statistics.median(steps[number, split, limit, schedule] for number in range(count))
                ratio = statistics.median(steps[number, split, limit, schedule] / steps[number, split, limit, "auto"]
                                          for number in range(count))
                lines.append(f"{limit:>5}  {schedule:<12}{held(report):>5}{report['step_time_ns'] / 1e6:>9.1f} ms{measured / 1e6:>9.1f} ms"
                             f"{report['step_time_ns'] / own:>18.3f}{ratio:>17.3f}")
        lines.append("")
    with open(os.path.join(out, "table.txt"), "w") as file:
        file.write("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
